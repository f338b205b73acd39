package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

func TestMain(m *testing.M) {
	connectTime = time.Second
	os.Exit(m.Run())
}

func TestHelpForUnknownTopicFails(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help", "nope"}, {"help", "stream", "nope"}, {"completion", "nope"}} {
		out, err := typed(t, args...)
		if app.ExitCode(err) != 2 || out != "" || !strings.Contains(err.Error(), "nope") {
			t.Errorf("%v ends with %v and writes %q", args, err, out)
		}
	}
	for want, args := range map[string][]string{
		"Usage:": {"help"}, "stream init": {"help", "stream"}, "--max-age": {"help", "stream", "init"},
		"powershell": {"completion"}, "bash": {"completion", "bash"},
	} {
		if out, err := typed(t, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v ends with %v and writes %.100q", args, err, out)
		}
	}
}

func TestErrorsNameFlagsAndArguments(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"get hosts --limit x":    `--limit "x": expected a whole number; see gputap get hosts --help`,
		"top --interval 2":       `--interval "2": expected a number with a unit, such as 5s, 10m or 1h; see gputap top --help`,
		"record inspect":         "no FILE given; use gputap record inspect FILE…",
		"describe process":       "no PID given; use gputap describe process [CLUSTER/][HOST/]PID",
		"describe process 1 2 3": `unexpected argument "2"; see gputap describe process --help`,
		"get hosts all":          `unexpected argument "all"; see gputap get hosts --help`,
		"stream init now":        `unexpected argument "now"; see gputap stream init --help`,
		"version x":              `unexpected argument "x"; see gputap version --help`,
		"config print":           "no program given; use one of producer, leak",
		"run --":                 "no command follows --; name one, or leave -- out to watch the whole host",
		"run train.py":           `unexpected argument "train.py"; write -- before the command to run`,
		"export foo F -o x":      `unknown command "foo": use gputap export csv, jsonl, memory-viz, parquet, perfetto, `,
		"export jsnol F -o x":    `unknown command "jsnol": did you mean gputap export jsonl?`,
		"export -o x":            "unknown shorthand flag: 'o' in -o; see gputap export --help",
		"analyze diff A":         "no B given; use gputap analyze diff A B",
		"analyze diff":           "no A B given; use gputap analyze diff A B",
		"analyze diff A B C":     `unexpected argument "C"; see gputap analyze diff --help`,
		"analyze usage --by x F": `--by "x": use one of class, gpu, name, stack, symbol, thread, torch`,
		"get host":               `unknown command "host": did you mean gputap get hosts?`,
	} {
		_, err := typed(t, strings.Fields(line)...)
		if app.ExitCode(err) != 2 || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s ends with %d, %v; want %s", line, app.ExitCode(err), err, want)
		}
	}
}

// TestHelpHasExamplesAndExitStatus leaves out the commands that cobra adds.
func TestHelpHasExamplesAndExitStatus(t *testing.T) {
	t.Parallel()
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		for _, below := range c.Commands() {
			check(below)
		}
		if !c.Runnable() {
			return
		}
		if !strings.Contains(c.Example, "gputap "+strings.Join(words(c), " ")) {
			t.Errorf("%s --help has no example", c.CommandPath())
		}
		if !strings.Contains(c.Long, "\nExit status") {
			t.Errorf("%s --help does not name the exit statuses", c.CommandPath())
		}
	}
	for _, c := range rootCommand().Commands() {
		check(c)
	}
}

// TestHelpSaysNothingTwice compares the paragraphs of each help text.
func TestHelpSaysNothingTwice(t *testing.T) {
	t.Parallel()
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		seen := map[string]bool{}
		for paragraph := range strings.SplitSeq(c.Long, "\n\n") {
			if seen[paragraph] {
				t.Errorf("%s --help repeats %q", c.CommandPath(), paragraph)
			}
			seen[paragraph] = true
		}
		for _, below := range c.Commands() {
			check(below)
		}
	}
	check(rootCommand())
}

// TestExamplesOfHelpAreAccepted parses the flags of every example.
func TestExamplesOfHelpAreAccepted(t *testing.T) {
	t.Parallel()
	root := rootCommand()
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			check(below)
		}
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, " #")
			fields := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if i := slices.Index(fields, "gputap"); i >= 0 {
				fields = fields[i+1:]
			}
			for i, word := range fields { // what a shell would take
				if strings.ContainsAny(word[:1], "|>&") {
					fields = fields[:i]
					break
				}
			}
			found, args, err := root.Find(fields)
			if err == nil && found.DisableFlagParsing {
				continue
			}
			if err == nil {
				err = found.ParseFlags(args)
			}
			if err != nil {
				t.Errorf("%s --help: %s: %v", c.CommandPath(), line, err)
			}
		}
	}
	for _, c := range root.Commands() {
		check(c)
	}
}

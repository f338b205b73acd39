package main

import (
	"os"
	"strings"
	"testing"
	"time"

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
		"describe process":       "no PID given; use gputap describe process [HOST/]PID",
		"describe process 1 2 3": `unexpected argument "2"; see gputap describe process --help`,
		"get hosts all":          `unexpected argument "all"; see gputap get hosts --help`,
		"stream init now":        `unexpected argument "now"; see gputap stream init --help`,
		"version x":              `unexpected argument "x"; see gputap version --help`,
		"config print":           "no program given; use one of producer, leak",
		"run train.py":           `unexpected argument "train.py"; write -- before the command to run`,
		"get host":               `unknown command "host": did you mean gputap get hosts?`,
	} {
		_, err := typed(t, strings.Fields(line)...)
		if app.ExitCode(err) != 2 || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s ends with %d, %v; want %s", line, app.ExitCode(err), err, want)
		}
	}
}

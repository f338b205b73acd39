package docs

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLinks checks that every link inside the repository leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings := map[string][]string{}
	all := pages(t)
	for _, p := range all {
		headings[p.name] = anchors(p.prose)
	}
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := p.name
			if file != "" {
				to = path.Join(path.Dir(p.name), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: link to %s: %v", p.name, m[1], err)
			}
			if anchor != "" && !slices.Contains(headings[to], anchor) {
				t.Errorf("%s: link to %s: the page has no such heading", p.name, m[1])
			}
		}
	}
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(prose string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// TestCodeInSentences checks the make targets, commands, flags and files that pages name outside of blocks.
func TestCodeInSentences(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	file := regexp.MustCompile(`^(bpf|schema|config|producer|consumer|cmd|deploy|docs|examples)/[\w./-]+$`)
	for _, p := range pages(t) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(p.prose, -1) {
			words := strings.Fields(m[1])
			if len(words) > 1 && words[0] == "make" && !strings.Contains(string(makefile), "\n"+words[1]+":") {
				t.Errorf("%s: `%s`: the Makefile has no such target", p.name, m[1])
			}
			if file.MatchString(m[1]) && !strings.HasPrefix(p.name, "docs/measurements/") {
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s: `%s`: %v", p.name, m[1], err)
				}
			}
		}
	}
}

// foreignFlags are flags that pages name and that belong to other programs than gputap's.
var foreignFlags = []string{
	"--json", "--server", "--save", "--kind", "--stream", "--ca", "--cert", "--key", "--host", "--batches",
	"--query-gpu", "--format",
	"--cuda-memory-usage", "--cudabacktrace", // of nsys
}

// checkFlags checks gputap's commands and flags that pages name outside of blocks, by the help of the programs in dir.
func checkFlags(t *testing.T, dir string) {
	var flags []string
	flag := regexp.MustCompile(`(?m)^\s+(?:-\w, )?(--[\w.-]+)`) // a flag's own line, not an example
	commands := [][]string{
		{"gputap", "run"}, {"gputap", "demo"}, {"gputap", "doctor"}, {"gputap", "simulate"}, {"gputap", "record"},
		{"gputap", "record", "inspect"}, {"gputap", "record", "redact"}, {"gputap", "replay"},
		{"gputap", "analyze", "leakage"}, {"gputap", "analyze", "usage"}, {"gputap", "plot", "usage"},
		{"gputap", "analyze", "diff"}, {"gputap", "anomaly", "backtest"}, {"gputap", "export", "perfetto"},
		{"gputap", "config", "print", "leak"}, {"gputap", "get", "processes"}, {"gputap", "get", "alerts"},
		{"gputap", "describe", "process"},
		{"gputap", "status"}, {"gputap", "tail"}, {"gputap", "top"},
		{"gputap", "stream", "init"}, {"gputap", "stream", "info"}, {"gputap", "stream", "dlq"},
		{"gputap", "stream", "rm"},
	}
	daemons, err := filepath.Glob("../cmd/gputap-*")
	if err != nil || len(daemons) == 0 {
		t.Fatalf("no programs in cmd: %v", err)
	}
	for _, folder := range daemons {
		commands = append(commands, []string{filepath.Base(folder)})
	}
	for _, args := range commands {
		out, err := exec.Command(filepath.Join(dir, args[0]), append(args[1:], "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%v --help: %v\n%s", args, err, out)
		}
		if len(args) == 1 && !strings.Contains(string(out), "\nExamples:\n") {
			t.Errorf("%v --help has no example: config/usage.go", args)
		}
		for _, m := range flag.FindAllStringSubmatch(string(out), -1) {
			flags = append(flags, m[1])
		}
	}
	out, err := exec.Command(filepath.Join(dir, "gputap"), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("gputap --help: %v\n%s", err, out)
	}
	for _, p := range pages(t) {
		for _, m := range regexp.MustCompile("`(?:sudo )?(?:bin/)?gputap ([a-z]+)").FindAllStringSubmatch(p.prose, -1) {
			if !strings.Contains(string(out), "\n  "+m[1]+" ") {
				t.Errorf("%s: %s`: gputap has no such command", p.name, m[0])
			}
		}
		if p.name == "docs/development.md" { // flags of Go's tools and of test programs
			continue
		}
		prose := p.prose
		if p.name == "docs/coming-from.md" { // its first columns name the flags of older tools
			prose = regexp.MustCompile(`(?m)^\|[^|]*\|`).ReplaceAllString(prose, "|")
		}
		for _, m := range regexp.MustCompile("`[^`]*`").FindAllString(prose, -1) {
			for _, name := range regexp.MustCompile(`(?:^|[\s`+"`"+`\[])(--[a-z][\w.-]*\w)`).FindAllStringSubmatch(m, -1) {
				if !slices.Contains(flags, name[1]) && !slices.Contains(foreignFlags, name[1]) {
					t.Errorf("%s: %s: no program of gputap has the flag %s", p.name, m, name[1])
				}
			}
		}
	}
}

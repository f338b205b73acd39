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

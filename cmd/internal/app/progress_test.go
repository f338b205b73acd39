package app

import (
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/harness/terminal"
	"github.com/gputap/gputap/config"
)

// TestLogReplacesProgress logs while a line of progress is shown.
func TestLogReplacesProgress(t *testing.T) {
	t.Parallel()
	screen := terminal.Open(t, 100, 5)
	p := &Process{Stderr: screen.Program}
	p.Logging(config.Log{Level: "info", Format: "text"})
	p.Log.Info("recording")
	stop := p.Progress(func() string { return "4s covered" })
	screen.AwaitText("4s covered")
	p.Log.Info("draining")
	shown := screen.AwaitText("draining")
	stop()
	p.Log.Info("recorded")
	shown += screen.AwaitText("recorded")
	for line := range strings.Lines(shown) {
		if strings.Contains(line, "level=") && !strings.HasPrefix(line, "time=") {
			t.Errorf("the log does not begin a line: %q", line)
		}
	}
	if ended := screen.Screen(); strings.Contains(ended, "covered") {
		t.Errorf("the line of progress stays:\n%s", ended)
	}
}

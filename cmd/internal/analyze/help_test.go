package analyze

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

// TestHelpOfEachCommand: only commands that have --fail-on name it and status 3, and no line of the text is too long.
func TestHelpOfEachCommand(t *testing.T) {
	t.Parallel()
	p := &app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
	for _, root := range []*cobra.Command{Command(p), PlotCommand(p)} {
		for _, cmd := range append(root.Commands(), root) {
			var out bytes.Buffer
			cmd.SetOut(&out)
			check(t, cmd.Help())
			fails := map[string]bool{"watermark": true, "leakage": true, "usage": true, "analyze": true}[cmd.Name()] &&
				root.Name() == "analyze"
			if got := strings.Contains(out.String(), "--fail-on"); got != fails {
				t.Errorf("%s %s: --fail-on is shown: %t", root.Name(), cmd.Name(), got)
			}
			text, _, _ := strings.Cut(out.String(), "\nFlags:")
			for line := range strings.Lines(text) {
				if len(line) > 121 {
					t.Errorf("%s %s: %d letters: %s", root.Name(), cmd.Name(), len(line)-1, line)
				}
			}
		}
	}
}

// TestPlotNeedsAFile: the message says how to name it.
func TestPlotNeedsAFile(t *testing.T) {
	t.Parallel()
	cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"usage", "run.gputap"})
	err := cmd.ExecuteContext(t.Context())
	if app.ExitCode(err) != 2 || !strings.Contains(err.Error(), "use -o FILE.png") {
		t.Errorf("status %d, %v", app.ExitCode(err), err)
	}
}

// TestDiffOfNothing: an empty selection has no differences, but that is not the answer.
func TestDiffOfNothing(t *testing.T) {
	t.Parallel()
	run := lab{step: mib, launches: 10, copies: 4, comm: "serve"}.recording(t)
	for args, want := range map[string]string{
		"--comm typo":  "nothing to compare: no process in A or B\n\nincomplete: a: no process is selected",
		"--comm serve": "no differences\n",
	} {
		stdout, err := typed(t, append([]string{"diff", run, run}, strings.Fields(args)...)...)
		if !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: %v, got %s", args, err, stdout)
		}
	}
	var out bytes.Buffer
	writeDiff(&out, &Diff{Processes: make([]ProcessDiff, 1), Missing: []string{"b: 3 events were lost"}})
	const want = "no differences in the data, which are incomplete\n\nincomplete: b: 3 events were lost\n"
	if out.String() != want {
		t.Errorf("got %s", out.String())
	}
}

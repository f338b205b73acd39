package analyze

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
)

// TestSelectionOfNothingIsIncomplete: a mistyped name or time must not pass for a process without leaks. A process that
// exists and has no such events gives a complete answer.
func TestSelectionOfNothingIsIncomplete(t *testing.T) {
	t.Parallel()
	whole, state, other := recorded(t, false), recorded(t, true), lab{step: mib, launches: 10, copies: 4, sets: 2,
		comm: "serve"}.recording(t)
	plain := filepath.Join(t.TempDir(), "x.svg")
	early := "2020-01-01T00:00:00Z"
	for _, tt := range []struct{ args, unselected string }{
		{"leakage " + whole + " --comm typo --fail-on leak>0", "--comm typo"},
		{"leakage " + whole + " --pid 99999 --host gpu-7", "--host gpu-7, --pid 99999"},
		{"leakage " + whole + " --until " + early, "--until " + early},
		{"leakage " + state + " --until " + early, "--until " + early},
		{"watermark " + whole + " --user nobody", "--user nobody"},
		{"usage " + whole + " --job slurm:*", "--job slurm:*"},
		{"usage " + whole + " --since 2024-01-01T00:00:00Z --pid 8", "--pid 8, --since 2024-01-01T00:00:00Z"},
		{"launches " + other + " --cluster other", "--cluster other"},
		{"launches " + other + " --until " + early, "--until " + early},
		{"bandwidth " + other + " --comm typo", "--comm typo"},
		{"diff " + other + " " + other + " --comm typo", "--comm typo"},

		{"leakage " + whole + " --comm train --until 2023-11-14T22:13:21Z", ""},
		{"leakage " + state + " --pid 7", ""},
		{"usage " + state + " --since 2023-11-14T22:13:24Z --comm train", ""},
		{"launches " + other + " --comm serve", ""},
		{"bandwidth " + other + " --comm serve", ""},
		{"diff " + other + " " + other + " --comm serve", ""},
	} {
		stdout, err := typed(t, append(strings.Fields(tt.args), "-o", "json")...)
		want := "no process is selected by " + tt.unselected
		if tt.unselected == "" {
			check(t, err)
			continue
		}
		answer := object(t, stdout)
		missing, _ := answer["missing"].([]any)
		if app.ExitCode(err) != 4 || !strings.Contains(err.Error(), want) || answer["complete"] != false ||
			len(missing) == 0 || !strings.Contains(missing[0].(string), want) ||
			strings.Contains(tt.args, "Z") != strings.Contains(err.Error(), "; the file covers 2023-11-14T22:1") {
			t.Errorf("%s: status %d, %v, missing %q; want %s", tt.args, app.ExitCode(err), err, missing, want)
		}
	}
	for _, name := range []string{"usage", "watermark"} {
		cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{name, whole, "-o", plain, "--comm", "typo"})
		err := cmd.ExecuteContext(t.Context())
		if app.ExitCode(err) != 4 || !strings.Contains(err.Error(), "no process is selected by --comm typo") {
			t.Errorf("plot %s: status %d, %v", name, app.ExitCode(err), err)
		}
	}
}

package analyze

import (
	"bytes"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/plot"
)

// TestSumOfSteps adds step functions. The sums were computed by hand.
func TestSumOfSteps(t *testing.T) {
	t.Parallel()
	a := []plot.Point{{At: 1, Value: 10}, {At: 4, Value: 30}, {At: 9}}
	b := []plot.Point{{At: 2, Value: 5}, {At: 4, Value: 7}}
	none := slices.Values([]plot.Point{})
	got := slices.Collect(sum([]iter.Seq[plot.Point]{slices.Values(a), slices.Values(b), none}))
	want := []plot.Point{{At: 1, Value: 10}, {At: 2, Value: 15}, {At: 4, Value: 35}, {At: 4, Value: 37},
		{At: 9, Value: 7}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range sum([]iter.Seq[plot.Point]{slices.Values(a), slices.Values(b)}) {
		break // the others end, too
	}
}

// TestChart draws a recording with a log of nvidia-smi on top.
func TestChart(t *testing.T) {
	t.Parallel()
	dir, path := t.TempDir(), recorded(t, false)
	log := filepath.Join(dir, "smi.csv")
	local := wallStart.Add(2 * time.Second).Local().Format("2006/01/02 15:04:05.000")
	check(t, os.WriteFile(log, []byte("timestamp, index, memory.used [MiB]\n"+local+", 0, 1 MiB\n"), 0o600))
	two := filepath.Join(dir, "two.csv")
	check(t, os.WriteFile(two,
		[]byte("timestamp, index, memory.used [MiB]\n"+local+", 0, 1 MiB\n"+local+", 1, 2 MiB\n"), 0o600))
	for args, want := range map[string][]string{
		"usage":                       {"watermark: 160 B", "by process", "train (7)", "serve (8)", "host gpu-7"},
		"usage --by gpu --smi " + two: {"GPU memory by GPU", "GPU-0", "nvidia-smi, 2 GPUs"},
		"usage --by class --pid 8":    {"device", "managed", "watermark"},
		"watermark --smi " + log:      {"with its peak", "train (7): ", "serve (8): ", "nvidia-smi GPU 0"},
		"watermark --pid 7":           {"watermark: "},
		"usage --comm nobody":         {"no data", "no process is selected"},
		"usage --by job --width 2000": {"no job"},
	} {
		words, out := strings.Fields(args), filepath.Join(dir, "chart.svg")
		p := &app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
		cmd := PlotCommand(p)
		cmd.SetArgs(append([]string{words[0], path, "-o", out}, words[1:]...))
		if err := cmd.ExecuteContext(t.Context()); err != nil && app.ExitCode(err) != 4 {
			t.Fatal(err)
		}
		svg, err := os.ReadFile(out)
		check(t, err)
		for _, text := range want {
			if !bytes.Contains(svg, []byte(text)) {
				t.Errorf("%s: the chart has no %q", args, text)
			}
		}
	}
}

// TestUnusableLogs: a chart without a log that the user asked for is no success, and the error names the log.
func TestUnusableLogs(t *testing.T) {
	t.Parallel()
	const header = "timestamp, index, memory.used [MiB]\n"
	row := func(after time.Duration) string {
		return wallStart.Add(after).Local().Format("2006/01/02 15:04:05.000") + ", 0, 1 MiB\n"
	}
	for _, tt := range []struct {
		name, log string
		code      int
		want      string
	}{
		{"a row", header + row(2*time.Second), 0, ""},
		{"an hour later", header + row(time.Hour), 4, "nothing of it is drawn"},
		{"an hour earlier", header + row(-time.Hour), 4, "nothing of it is drawn"},
		{"nothing", "", 1, "it has no rows"},
		{"a program in C", "#include <stdio.h>\nint sizes[] = {\n\tone,\n\ttwo, 2\n};\nint main() {\n\treturn 0;\n}\n",
			1, "make the log with nvidia-smi --query-gpu=timestamp,index,memory.used --format=csv"},
		{"names and numbers", "apples, 5\npears, 6\n", 1, "--format=csv"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, path := t.TempDir(), recorded(t, false)
			log := filepath.Join(dir, "smi.csv")
			check(t, os.WriteFile(log, []byte(tt.log), 0o600))
			cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{"usage", path, "--smi", log, "-o", filepath.Join(dir, "chart.svg")})
			err := cmd.ExecuteContext(t.Context())
			if app.ExitCode(err) != tt.code || err != nil && (!strings.Contains(err.Error(), log) ||
				!strings.Contains(err.Error(), tt.want)) {
				t.Errorf("status %d: %v, want %d and %q", app.ExitCode(err), err, tt.code, tt.want)
			}
		})
	}
}

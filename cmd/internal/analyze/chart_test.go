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

// TestLogOfAnotherTime: nothing of a log of an hour later is drawn, and a message says so.
func TestLogOfAnotherTime(t *testing.T) {
	t.Parallel()
	dir, path := t.TempDir(), recorded(t, false)
	log := filepath.Join(dir, "smi.csv")
	for shift, want := range map[time.Duration]bool{2 * time.Second: false, time.Hour: true, -time.Hour: true} {
		local := wallStart.Add(shift).Local().Format("2006/01/02 15:04:05.000")
		check(t, os.WriteFile(log, []byte("timestamp, index, memory.used [MiB]\n"+local+", 0, 1 MiB\n"), 0o600))
		var stderr bytes.Buffer
		p := &app.Process{Stdout: io.Discard, Stderr: &stderr, Log: slog.New(slog.DiscardHandler)}
		cmd := PlotCommand(p)
		cmd.SetArgs([]string{"usage", path, "--smi", log, "-o", filepath.Join(dir, "chart.svg")})
		check(t, cmd.ExecuteContext(t.Context()))
		if got := strings.Contains(stderr.String(), "nothing of it is drawn"); got != want {
			t.Errorf("%s: %q", shift, stderr.String())
		}
	}
}

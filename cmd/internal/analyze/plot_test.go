package analyze

import (
	"bytes"
	"encoding/csv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// pytorch is a recording of PyTorch programs on a GPU.
const pytorch = "../harness/corpus/testdata/first/group-1.gputap"

// TestUsageOfTorch compares the last and the highest point of each process with the totals in its events, which the
// test reads itself.
func TestUsageOfTorch(t *testing.T) {
	t.Parallel()
	file, err := recording.Open(pytorch)
	check(t, err)
	defer file.Close()
	type total struct{ last, highest uint64 }
	want, b, d := map[string]total{}, &schema.Batch{}, schema.NewDecoder()
	for m, err := range file.Messages(recording.Filter{}) {
		check(t, err)
		check(t, d.Decode(m.Data, b))
		if b.Kind != schema.KindTensor {
			continue
		}
		for i := range b.Events {
			e := b.Tensor(i)
			who := strconv.Itoa(int(b.Processes[b.Threads[e.Thread].Process].PID)) + b.GPUs[e.GPU-1].UUID
			want[who] = total{e.Reserved, max(want[who].highest, e.Reserved)}
		}
	}
	stdout, err := typed(t, "usage", pytorch, "--by", "torch", "-o", "csv")
	check(t, err)
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	check(t, err)
	last := map[string]uint64{} // by process and series
	for _, row := range rows[1:] {
		n, err := strconv.ParseUint(row[7], 10, 64)
		check(t, err)
		last[row[1]+row[3]+row[4]] = n
	}
	if len(want) < 3 {
		t.Fatalf("%d processes in %s", len(want), pytorch)
	}
	for who, w := range want {
		if got := last[who+"tensors"] + last[who+"cached"]; got != w.last || w.highest == 0 {
			t.Errorf("%s: %d reserved at the end, want %d", who, got, w.last)
		}
	}
	if _, err := typed(t, "usage", recorded(t, false), "--by", "torch"); err == nil || app.ExitCode(err) != 4 ||
		!strings.Contains(err.Error(), "use the feature torch") {
		t.Errorf("without tensor events: %v", err)
	}
}

// TestPlots draws several runs, and copies.
func TestPlots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := recorded(t, false), filepath.Join(dir, "bad.gputap")
	data, err := os.ReadFile(good)
	check(t, err)
	check(t, os.WriteFile(bad, data, 0o600))
	again := filepath.Join(dir, "again.gputap")
	data, err = os.ReadFile(pytorch)
	check(t, err)
	check(t, os.WriteFile(again, data, 0o600))
	for _, tt := range []struct {
		args string
		code int
		want []string
	}{
		{"usage " + good + " " + bad, 0,
			[]string{"GPU memory of each run", "run.gputap", "bad.gputap", "Time since start"}},
		{"usage --by torch " + pytorch, 0, []string{"PyTorch tensors", "PyTorch cache"}},
		{"bandwidth " + pytorch, 0, []string{"HtoD", "Copied"}},
		{"bandwidth " + good, 4, []string{"no data", "no events of the kind copy"}},
		{"bandwidth --comm nobody " + pytorch, 4, []string{"no data", "no process is selected"}},
		{"bandwidth " + pytorch + " " + again, 0, []string{"Copies and sets of each run", "group-1", "again.gputap",
			"Time since start"}},
		{"usage --by class " + good + " " + bad, 2, nil},
		{"bandwidth --step -1s " + good, 2, nil},
		{"usage", 2, nil},
	} {
		out := filepath.Join(dir, "chart.svg")
		p := &app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
		cmd := PlotCommand(p)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(strings.Fields(tt.args), "-o", out))
		err := cmd.ExecuteContext(t.Context())
		if got := app.ExitCode(err); err != nil && got != tt.code || err == nil && tt.code != 0 {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		svg, _ := os.ReadFile(out) // the texts below are missing then
		for _, text := range tt.want {
			if !bytes.Contains(svg, []byte(text)) {
				t.Errorf("%s: the chart has no %q", tt.args, text)
			}
		}
	}
}

// TestPlotKeepsItsInputs draws into a recording that is read, and into the file of nvidia-smi.
func TestPlotKeepsItsInputs(t *testing.T) {
	t.Parallel()
	in := filepath.Join(t.TempDir(), "in.png")
	data, err := os.ReadFile(pytorch)
	check(t, err)
	check(t, os.WriteFile(in, data, 0o600))
	for _, args := range []string{"usage " + in, "watermark " + in, "bandwidth " + in,
		"bandwidth " + pytorch + " " + in, "usage " + pytorch + " --smi " + in} {
		cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(strings.Fields(args), "-o", in))
		if err := cmd.ExecuteContext(t.Context()); app.ExitCode(err) != 2 {
			t.Errorf("%s: status %d, %v", args, app.ExitCode(err), err)
		}
	}
	if after, err := os.ReadFile(in); err != nil || !bytes.Equal(after, data) {
		t.Errorf("the input has changed: %v", err)
	}
}

// TestCopyRatesKeepBytes adds copies at any time: whatever the width of the slots has become, the area below each
// direction is what was copied.
func TestCopyRatesKeepBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		rates, want := &copyRates{width: firstWidth}, map[string]float64{}
		base, spread := int64(1_700_000_000_000_000_000), int64(1)<<(20+seed*2)
		for range 500 {
			direction, n := schema.HtoD+schema.Direction(r.IntN(3)), r.Uint64N(1<<30)
			rates.slot(base + r.Int64N(spread))[direction] += n
			want[direction.String()] += float64(n)
		}
		if len(rates.slots) > maxSlots {
			t.Errorf("spread %s: %d slots", time.Duration(spread), len(rates.slots))
		}
		got := map[string]float64{}
		for _, s := range rates.chart(time.Duration(r.Int64N(spread))).Series {
			at, value := time.Duration(0), 0.0
			for p := range s.Points {
				got[s.Name] += value * (p.At - at).Seconds()
				at, value = p.At, p.Value
			}
		}
		for name, n := range want {
			if off := got[name]/n - 1; off < -1e-6 || off > 1e-6 {
				t.Errorf("spread %s: %s: %g bytes, want %g", time.Duration(spread), name, got[name], n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d directions, want %d", len(got), len(want))
		}
	}
}

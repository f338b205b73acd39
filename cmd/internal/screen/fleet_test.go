package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/harness/terminal"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/anomaly"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// fixed is a source with the same answers each time. Tests replace its functions.
type fixed struct {
	overview func(context.Context) (*answer.Overview, error)
	process  func(context.Context, Subject) (*report.Process, error)
}

func (f *fixed) Overview(ctx context.Context) (*answer.Overview, error) { return f.overview(ctx) }

func (f *fixed) Process(ctx context.Context, s Subject) (*report.Process, error) {
	return f.process(ctx, s)
}

const gpu1, gpu2 = "GPU-a0b1c2d3-0000-4000-8000-000000000001", "GPU-b0b1c2d3-0000-4000-8000-000000000002"

func trainer() *report.Process {
	p := &report.Process{
		Cluster: "prod", Host: "gpu-17", PID: 4021337, Comm: "python3", User: "ann", UID: 1000, Evidence: "complete",
		Start: ago(3 * time.Hour), LiveBytes: 61<<30 + 300<<20, LiveAllocations: 811, PeakBytes: 70 << 30,
		GPUs: map[string]*report.GPU{gpu1: {LiveBytes: 61 << 30}, gpu2: {LiveBytes: 300 << 20}},
		Verdicts: []report.Verdict{
			{GPU: gpu1, State: "suspect", SlopeBytesPerHour: 3<<30 + 512<<20, SuspectBytes: 7 << 30,
				Why: "live memory has grown by 7.00 GiB in 2h0m0s and does not come down " +
					"(3.50 GiB per hour); 6.20 GiB of " +
					"it is older than 7m0s and still live; the GPU is full in 22h0m0s",
				Groups: []report.Group{
					{TID: 4021337, Thread: "python3", Class: "device", SizeClass: 16 << 20, Bytes: 7 << 30,
						Allocations: 350, OldestSeconds: 7200},
					{TID: 4021390, Thread: "cache", Class: "device", SizeClass: 4 << 10, Bytes: 1 << 20,
						Allocations: 200, OldestSeconds: 600},
				}},
			{GPU: gpu2, State: "steady"},
		},
		Job: "slurm:1742", Rank: new(uint32(3)),
	}
	add := func(n int, bytes uint64, class, gpu string, tid uint32, thread, symbol string) {
		for i := range n {
			p.Largest = append(p.Largest, report.Allocation{
				Address: fmt.Sprintf("0x7f%02x%08x", len(p.Largest), i<<25), Bytes: bytes, Class: class,
				GPU: gpu, TID: tid,
				Thread: thread, Since: ago(time.Duration(len(p.Largest)+1) * time.Minute), Symbol: symbol})
		}
	}
	add(1, 32<<30, "device", gpu1, 4021337, "python3", "cuMemAlloc_v2")
	add(2, 1<<30, "vmm", gpu1, 4021337, "python3", "cuMemCreate")
	add(1, 300<<20, "pool", gpu2, 4021400, "loader", "cuMemAllocAsync")
	add(30, 20<<20, "device", gpu1, 4021337, "python3", "cuMemAlloc_v2")
	return p
}

// overview is a fleet with every state, and so many more processes.
func overview(more int) *answer.Overview {
	list := []*answer.Activity{
		{Process: trainer(), LaunchRate: new(1234.5), WaitShare: new(.314), Copied: new(uint64(3 << 40))},
		{Process: &report.Process{Cluster: "prod", Host: "gpu-2", PID: 88, Comm: "serve", UID: 33, Evidence: "gap",
			Ended: true, Start: ago(50 * time.Hour), PeakBytes: 20 << 20, UnfreedBytes: 512}},
		{Process: &report.Process{Cluster: "prod", Host: "gpu-2", PID: 4242, Comm: "Triton\x1b[2J",
			User: "svc-inference", Evidence: "late", Start: ago(9 * time.Minute), LiveBytes: 1023<<20 + 1014<<10,
			PeakBytes: 2 << 30, LiveAllocations: 12,
			Verdicts: []report.Verdict{{State: "growing", SlopeBytesPerHour: 64 << 20}}},
			LaunchRate: new(0.25), Copied: new(uint64(12))},
		{Process: &report.Process{Cluster: "lab", Host: "workstation.of.somebody.example.org", PID: 7, Comm: "学習プログラム",
			User: "bo", Evidence: "complete", Start: ago(time.Second), LiveBytes: 8 << 20, PeakBytes: 8 << 20},
			WaitShare: new(1.9)},
	}
	for i := range more {
		list = append(list, &answer.Activity{Process: &report.Process{Cluster: "prod",
			Host: fmt.Sprintf("gpu-1%02d", i/4), PID: uint32(1000 + i), Comm: "worker", User: "ann",
			Evidence: "complete", Start: ago(time.Hour),
			LiveBytes: uint64(more-i) << 10, PeakBytes: uint64(1+i*37%more) << 20, LiveAllocations: uint64(i)},
			LaunchRate: new(float64(i * 7 % 11))})
	}
	return &answer.Overview{
		Time: ago(2 * time.Second), Hosts: 200, Heard: 198, Processes: list,
		Reach: answer.Reach{Shards: 16, Answered: 14, Missing: []int{3, 9}, NotRunning: []string{"bandwidth"}},
		Firing: []anomaly.Alert{{Host: "gpu-17", Rule: "oom", Severity: "critical", Time: ago(12 * time.Minute),
			Message: "cuMemAlloc_v2 of 2.00 GiB failed; python3 holds 61.29 GiB"}, {}},
	}
}

func fleet(more int) *fixed {
	o := overview(more)
	return &fixed{
		overview: func(context.Context) (*answer.Overview, error) { return o, nil },
		process: func(_ context.Context, s Subject) (*report.Process, error) {
			for _, a := range o.Processes {
				if s.Is(a.Process) {
					return a.Process, nil
				}
			}
			return nil, nil
		},
	}
}

func options(styles Styles) Options {
	return Options{Interval: time.Hour, Styles: styles, Now: func() time.Time { return now }}
}

// run runs a screen on a terminal until the test ends.
func run(t *testing.T, source Source, opts Options, width, height int) *terminal.Terminal {
	t.Helper()
	tty := terminal.Open(t, width, height)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, source, opts, tty.Program, tty.Program) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return tty
}

var errBus = errors.New("read the topology: connection closed; start gputap run")

func lineWith(screen, text string) string {
	for line := range strings.Lines(screen) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

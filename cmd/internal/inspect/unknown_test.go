package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/schema"
)

type launchProgram struct{}

func (launchProgram) run(ctx context.Context, p *app.Process) error {
	return fold.Launch.Run(ctx, p, func(io.Writer, []*launch.Histogram) {})
}

// TestUnknownIsNotZero asks about processes that only gputap-launch knows, because gputap-leak hangs, or does not run.
func TestUnknownIsNotZero(t *testing.T) {
	t.Parallel()
	for _, hung := range []bool{true, false} {
		f := newFleet(t, shards)
		f.consume("launch", launchProgram{})
		if hung {
			f.hang("leak")
		}
		j := &consumertest.Job{Name: "slurm:1.0", Ranks: 4, PerHost: 2, Random: rand.New(rand.NewPCG(1, 2)),
			Step: consumertest.NCCL(10, -1, 200*time.Millisecond, 60*time.Millisecond, 0)}
		for _, m := range j.Messages(t, 4*time.Second) {
			b := consumertest.Decode(t, m.Data)
			f.publish(b.Cluster, b.Host, b.Kind, m.Data)
		}
		f.settled("launch")
		host, pid := "slurm:1.0-0", j.Process(0).PID
		name := fmt.Sprintf("%s/%d", host, pid)
		stdout, _, err := f.typed("describe", "process", name, "--timeout", "1s")
		if app.ExitCode(err) != 4 || !strings.Contains(stdout, ", state unknown   since") ||
			!strings.Contains(stdout, "\n  memory unknown: gputap-leak did not answer about this process\n") ||
			!strings.Contains(stdout, "\n  copies and waits unknown: gputap-bandwidth did not answer about "+
				"this process\n") ||
			strings.Contains(stdout, "0 B") || !strings.Contains(stdout, " launches of ") ||
			strings.Contains(stdout, "needs the features") {
			t.Errorf("hung %t: describe: %v\n%s", hung, err, stdout)
		}
		stdout, _, _ = f.typed("describe", "process", name, "--timeout", "1s", "-o", "json")
		var list struct{ Items []map[string]any }
		f.check(json.Unmarshal([]byte(stdout), &list))
		for _, key := range []string{"ended", "evidence", "live_bytes", "live_allocations", "peak_bytes",
			"unfreed_at_exit_bytes", "gpus", "threads", "verdicts", "torch", "copies", "waits", "copy_groups"} {
			if value, has := list.Items[0][key]; !has || value != nil {
				t.Errorf("hung %t: %s is %v, want null", hung, key, value)
			}
		}
		if list.Items[0]["launches"] == nil || list.Items[0]["pid"] != float64(pid) {
			t.Errorf("hung %t: launches or pid are unknown: %s", hung, stdout)
		}
		stdout, _, err = f.typed("top", "--once", "--timeout", "1s")
		if app.ExitCode(err) != 4 ||
			!strings.Contains(stdout, "hosts unknown  4 processes  memory unknown  alerts unknown") ||
			!strings.Contains(stdout, "\n unknown ") || strings.Contains(stdout, "0 B") {
			t.Errorf("hung %t: top: %v\n%s", hung, err, stdout)
		}
		stdout, _, _ = f.typed("top", "-o", "json", "--timeout", "1s")
		f.check(json.Unmarshal([]byte(stdout), &list))
		for _, key := range []string{"live_bytes", "peak_bytes", "growth_bytes_per_hour", "gpus", "copied_bytes"} {
			if value, has := list.Items[0][key]; !has || value != nil {
				t.Errorf("hung %t: top: %s is %v, want null", hung, key, value)
			}
		}
		if !strings.Contains(stdout, `"hosts":null,"heard":null,"firing":null`) {
			t.Errorf("hung %t: top prints %s", hung, stdout)
		}
	}
}

// TestGrowthWhileWarming: the growth of a process that is not judged yet is unknown, and sorted last.
func TestGrowthWhileWarming(t *testing.T) {
	t.Parallel()
	of := func(pid uint32, states ...string) *report.Process {
		p := &report.Process{PID: pid, Evidence: "complete"}
		for _, s := range states {
			v := report.Verdict{State: s, SlopeBytesPerHour: 136 << 30}
			if v.Grows() {
				v.SlopeBytesPerHour = uint64(pid)
			}
			p.Verdicts = append(p.Verdicts, v)
		}
		return p
	}
	l := &answer.List[process]{Time: now, Items: []process{of(1, "warming"), of(2, "steady"),
		of(3, "growing", "warming"), of(4, "steady", "unknown"), of(5), of(6, "suspect", "steady")}}
	by := slices.IndexFunc(processes.orders, func(o order[process]) bool { return o.name == "growth" })
	processes.sort(l, processes.orders[by].compare, 0)
	var got []string
	for _, p := range l.Items {
		got = append(got, fmt.Sprint(p.PID, " ", amount(p.Growth())))
	}
	if want := "6 6 B, 3 3 B, 2 0 B, 5 0 B, 1 -, 4 -"; strings.Join(got, ", ") != strings.ReplaceAll(want, " B", "") {
		t.Errorf("got %q, want %s", got, want)
	}
}

// TestRenamedProcess: a process renames itself after its first allocations. gputap-leak knows it by its first name and
// gputap-launch by its second one, so a filter finds it in one fold alone.
func TestRenamedProcess(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.consume("leak", leakProgram{})
	f.consume("launch", launchProgram{})
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "first")
	p.Alloc(7, 1<<32, 100<<20, 10, 1)
	f.publish("test", "gpu-1", schema.KindMemory, h.Message())
	p.Comm = "second"
	launches := schema.NewBuilder(schema.KindLaunch)
	thread := launches.Thread(schema.Thread{Process: launches.Process(p.Process), TID: 7})
	shape := launches.Shape(schema.LaunchShape{Func: launches.Func(schema.Func{Name: "k"}),
		Call: launches.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})})
	launches.AddLaunch(&schema.Launch{Time: 400, Thread: thread, Shape: shape, CUDAStream: launches.CUDAStream(0)})
	header := h.Header
	header.Seq = 1
	f.publish("test", "gpu-1", schema.KindLaunch, launches.Encode(&header))
	f.settled("leak")
	f.settled("launch")
	for line, null := range map[string]string{
		"get processes --comm second": "live_bytes peak_bytes threads gpus verdicts evidence",
		"get processes --comm first":  "launches kernels",
		"get processes":               "", // every fold was asked about all processes
		"top --comm second":           "live_bytes peak_bytes growth_bytes_per_hour gpus",
	} {
		stdout, _, err := f.typed(append(strings.Fields(line), "-o", "json")...)
		f.check(err)
		var list struct{ Items []map[string]any }
		if f.check(json.Unmarshal([]byte(stdout), &list)); len(list.Items) != 1 {
			t.Fatalf("%s prints %s", line, stdout)
		}
		for _, key := range []string{"live_bytes", "threads", "gpus", "verdicts", "evidence", "launches", "kernels",
			"peak_bytes", "growth_bytes_per_hour"} {
			value, has := list.Items[0][key]
			if want := slices.Contains(strings.Fields(null), key); has && (value == nil) != want {
				t.Errorf("%s: %s is %v; null: %t", line, key, value, want)
			}
		}
	}
	stdout, _, err := f.typed("top", "--once", "--comm", "second")
	if f.check(err); !strings.Contains(stdout, "\n unknown ") || strings.Contains(stdout, "0 B") ||
		!strings.Contains(stdout, "  1 process  memory unknown  ") {
		t.Errorf("top prints\n%s", stdout)
	}
}

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// epoch is when the tests' outage begins. The outage lasts 100 s, with the reboot in the middle. Both boots begin at
// epoch.
var epoch = time.Unix(1_800_000_000, 0)

func second(n float64) time.Time { return epoch.Add(time.Duration(n * float64(time.Second))) }

// scenario is a stream under construction, and the truth.
type scenario struct {
	stored   *stored
	programs map[programID]*program
}

func newScenario() *scenario {
	t := times{down: epoch, reboot: second(50), up: second(100)}
	return &scenario{
		stored:   newStored(t, map[string]time.Duration{"a": 0, "b": 0}),
		programs: map[programID]*program{},
	}
}

// ran adds a program of one process, PID 10 and its number, that allocated n times.
func (p *scenario) ran(boot string, number int, began, ended float64, n uint64) *program {
	r := &program{
		Number: number, Args: "w", Began: second(began), Ended: second(ended),
		Images: []stub.Image{{PID: 10 + uint32(number), Loaded: uint64(began*1e9) + 2,
			Calls: map[string]stub.Call{"cuMemAlloc_v2": {OK: n}, "cuInit": {OK: 1}}}},
	}
	p.programs[programID{boot, number}] = r
	return r
}

// memory stores a batch of such a process at second 101: allocations at the given seconds, and its exit at the last
// one.
func (p *scenario) memory(t *testing.T, boot string, seq uint64, number int, began float64, at ...float64) []byte {
	t.Helper()
	b := schema.NewBuilder(schema.KindMemory)
	b.Call(schema.CallRef{Symbol: "cuMemAlloc_v2", Op: schema.OpAlloc})
	b.Call(schema.CallRef{Symbol: "exit", Op: schema.OpExit})
	b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 10 + uint32(number), Start: schema.KTime(began*1e9) +
		1})})
	for i, s := range at {
		call := uint32(0)
		if i == len(at)-1 {
			call = 1
		}
		b.AddMemory(&schema.Memory{Time: schema.KTime(s * 1e9), Call: call})
	}
	data := bytes.Clone(b.Encode(&schema.Header{
		Kind: schema.KindMemory, Cluster: "c", Host: "h", BootID: boot, Run: 1, Seq: seq, ClockOffset: epoch.UnixNano(),
	}))
	if err := p.stored.add(data, second(101)); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCompareFindsEveryDifference(t *testing.T) {
	for _, c := range []struct {
		name, want string // of the faults; "": none
		powerCut   bool
		change     func(t *testing.T, p *scenario)
	}{
		{"no difference", "", false, func(*testing.T, *scenario) {}},
		{"a call is missing", "2 calls of cuMemAlloc_v2 are in the stream, the stub counted 3", false,
			func(_ *testing.T, p *scenario) {
				p.programs[programID{"b", 1}].Images[0].Calls["cuMemAlloc_v2"] = stub.Call{OK: 3}
			}},
		{"a call is stored twice", "2 calls of cuMemAlloc_v2 are in the stream, the stub counted 1", false,
			func(_ *testing.T, p *scenario) {
				p.programs[programID{"b", 1}].Images[0].Calls["cuMemAlloc_v2"] = stub.Call{OK: 1}
			}},
		{"no batch of a program", "0 calls of cuMemAlloc_v2", false,
			func(_ *testing.T, p *scenario) { p.ran("b", 2, 80, 81, 5) }},
		{"a batch of no program", "no program ran it", false,
			func(t *testing.T, p *scenario) { p.memory(t, "b", 2, 2, 80, 80.5, 81) }},
		{"events after the program ended", "ran from", false, func(t *testing.T, p *scenario) {
			p.ran("b", 2, 80, 81, 1)
			p.memory(t, "b", 2, 2, 80, 80.5, 101)
		}},
		{"events before the program began", "ran from", false, func(t *testing.T, p *scenario) {
			p.ran("b", 2, 80, 81, 1)
			p.memory(t, "b", 2, 2, 80, 79.9, 80.5)
		}},
		{"a gap", "seq 3 of memory of boot b follows 1", false, func(t *testing.T, p *scenario) {
			p.ran("b", 2, 80, 81, 1)
			p.memory(t, "b", 3, 2, 80, 80.5, 80.6)
		}},
		{"a batch is stored twice", "", false, func(t *testing.T,
			p *scenario) {
			p.memory(t, "b", 1, 1, 60, 60.2, 60.3, 60.9)
		}},
		{"a seq is used twice", "with different events", false,
			func(t *testing.T, p *scenario) { p.memory(t, "b", 1, 1, 60, 60.2, 60.4, 60.9) }},
		{"an exit is stored twice", "2 exits", false,
			func(t *testing.T, p *scenario) { p.memory(t, "b", 2, 1, 60, 60.95) }},
		{"a program failed", "out of order", false,
			func(_ *testing.T, p *scenario) { p.programs[programID{"a", 1}].Error = "out of order" }},
		{"a program's end was not reported", "its end was not reported", false, func(_ *testing.T, p *scenario) {
			p.programs[programID{"b", 1}].Ended = time.Time{}
		}},
		{"no program in the second boot", "during the outage in boot 2", false, func(_ *testing.T, p *scenario) {
			p.programs[programID{"b", 1}].Ended = second(100.5)
		}},
		{"events were lost", "3 lost", false, func(_ *testing.T, p *scenario) { p.stored.lost = 3 }},
		{"a batch of an earlier run follows", "follows a later run of the producer", false,
			func(t *testing.T, p *scenario) {
				p.ran("a", 3, 40, 41, 1)
				p.memory(t, "a", 3, 3, 40, 40.5, 40.6)
			}},
		{"a power cut lost the last calls", "", true, func(_ *testing.T, p *scenario) {
			p.programs[programID{"a", 2}].Ended = time.Time{}
			p.programs[programID{"a", 2}].Images[0].Calls["cuMemAlloc_v2"] = stub.Call{OK: 9}
		}},
		{"a power cut lost old calls", "1 calls of cuMemAlloc_v2", true, func(_ *testing.T, p *scenario) {
			p.programs[programID{"a", 1}].Images[0].Calls["cuMemAlloc_v2"] = stub.Call{OK: 2}
		}},
		{"a power cut lost too much", "lost 43.0 s of memory", true,
			func(_ *testing.T, p *scenario) { p.stored.times.reboot = second(92) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newScenario()
			p.ran("a", 1, 0.5, 1, 1)
			p.memory(t, "a", 1, 1, 0.5, 0.6, 0.99)
			p.ran("a", 2, 48, 49.2, 2)
			p.memory(t, "a", 2, 2, 48, 48.5, 48.6, 49)
			p.ran("b", 1, 60, 61, 2)
			p.memory(t, "b", 1, 1, 60, 60.2, 60.3, 60.9)
			c.change(t, p)
			compare(p.stored, p.programs, []string{"a", "b"}, c.powerCut)
			got := fmt.Sprint(p.stored.err())
			if c.want == "" && p.stored.err() != nil || !strings.Contains(got, c.want) {
				t.Errorf("faults: %s; want: %q", got, c.want)
			}
		})
	}
}

func TestLeakReportMustEqualTheStub(t *testing.T) {
	id := schema.ProcessID{Cluster: "c", Host: "h", BootID: "a", PID: 11, Start: 500_000_001}
	for _, c := range []struct {
		name, want string
		change     func(c *comparison, r *leak.Report)
	}{
		{"no difference", "", func(*comparison, *leak.Report) {}},
		{"bytes", "9 bytes unfreed", func(_ *comparison, r *leak.Report) { r.Processes[0].UnfreedBytes = 9 }},
		{"a gap", "ended true, gap", func(_ *comparison, r *leak.Report) { r.Processes[0].Evidence = "gap" }},
		{"no exit", "ended false", func(_ *comparison, r *leak.Report) { r.Processes[0].Ended = false }},
		{"an unknown process", "process 12", func(_ *comparison, r *leak.Report) { r.Processes[0].ID.PID = 12 }},
		{"no process", "does not report process 11", func(_ *comparison, r *leak.Report) { r.Processes = nil }},
		{"an unmatched free", "UnmatchedFrees:1", func(_ *comparison,
			r *leak.Report) {
			r.Counters.UnmatchedFrees = 1
		}},
		{"cut and complete", "ended true, complete",
			func(c *comparison, _ *leak.Report) { c.cut[id], c.processes[id].exits = true, 0 }},
		{"cut", "", func(c *comparison, r *leak.Report) {
			c.cut[id], c.processes[id].exits, r.Processes[0].Evidence = true, 0, "gap"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newScenario()
			p.ran("a", 1, 0.5, 1, 1).Images[0].LiveBytes = 8
			p.memory(t, "a", 1, 1, 0.5, 0.6, 0.99)
			made := compare(p.stored, p.programs, nil, false)
			r := leak.Report{Processes: []leak.Process{{Info: process.Info{ID: id}, Ended: true, Evidence: "complete",
				UnfreedBytes: 8}}}
			c.change(made, &r)
			made.leak(&r)
			err := made.err()
			if c.want == "" && err != nil || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestKeptBatchesAreCounted: batches of the outage that were stored after it came from the outbox.
func TestKeptBatchesAreCounted(t *testing.T) {
	p := newScenario()
	data := p.memory(t, "a", 1, 1, 1, 1.5, 1.9)
	p.memory(t, "a", 2, 1, 1, 100.2, 100.5)
	if k := p.stored.kept; k.batches != 1 || k.events != 2 || k.bytes != len(data) || !k.drained.Equal(second(101)) {
		t.Errorf("kept %+v", k)
	}
	if p.stored.during != 2 {
		t.Errorf("%d events are from during the outage, want 2", p.stored.during)
	}
}

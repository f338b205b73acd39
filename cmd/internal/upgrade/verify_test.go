package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

func second(n int) time.Time { return time.Unix(1_800_000_000+int64(n), 0) }

// tape is streams under construction, and the truth: two producers, one program in each one's time, one across the change.
type tape struct {
	t       *testing.T
	stored  *stored
	decoder *schema.Decoder
	batch   schema.Batch
	ran     []*program
	windows []window
	views   views
}

func id(pid uint32) schema.ProcessID {
	return schema.ProcessID{Cluster: "c", Host: "h", BootID: "b", PID: pid, Start: schema.KTime(pid)}
}

func newTape(t *testing.T) *tape {
	watched := map[string]bool{"cuMemAlloc_v2": true}
	old, today := &release{name: "old", watched: watched}, &release{name: "today's", watched: watched}
	p := &tape{
		t: t, stored: newStored(), decoder: schema.NewDecoder(),
		windows: []window{{old, second(0), second(10), second(12)}, {today, second(20), second(30), second(31)}},
		views:   views{leak: map[schema.ProcessID]*leak.Process{}, launch: map[schema.ProcessID]*launch.Process{}},
	}
	p.program(1, 1, 2, "complete")
	p.program(2, 9, 15, "gap")
	p.program(3, 21, 22, "complete")
	return p
}

// program has one process that allocates 8 bytes twice, and frees nothing.
func (p *tape) program(pid uint32, began, ended int, evidence string) {
	p.ran = append(p.ran, &program{name: "w", began: second(began), ended: second(ended), images: []stub.Image{{
		PID: pid, Loaded: uint64(pid), Live: 16, Calls: map[string]uint64{"cuMemAlloc_v2": 2, "cuInit": 1}, Bytes: map[string]uint64{"cuMemAlloc_v2": 16},
	}}})
	p.views.leak[id(pid)] = &leak.Process{
		Info: process.Info{ID: id(pid)}, Ended: true, Evidence: evidence, UnfreedBytes: 16, Calls: []process.Call{{Symbol: "cuMemAlloc_v2", OK: 2}},
	}
}

// memory stores a batch of a process: allocations of 8 bytes, and its end.
func (p *tape) memory(run, seq uint64, pid uint32, allocations int) {
	p.t.Helper()
	b := schema.NewBuilder(schema.KindMemory)
	b.Call(schema.CallRef{Symbol: "cuMemAlloc_v2", Op: schema.OpAlloc})
	b.Call(schema.CallRef{Symbol: "process_exit", Op: schema.OpExit})
	b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: pid, Start: schema.KTime(pid)})})
	for range allocations {
		b.AddMemory(&schema.Memory{Time: 50, Bytes: 8})
	}
	b.AddMemory(&schema.Memory{Time: 60, Call: 1})
	data := bytes.Clone(b.Encode(&schema.Header{Kind: schema.KindMemory, Cluster: "c", Host: "h", BootID: "b", Run: run, Seq: seq}))
	if err := p.stored.take(p.decoder, &p.batch, data); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tape) all() {
	p.memory(5, 1, 1, 2)
	p.memory(5, 2, 2, 1)
	p.memory(6, 1, 3, 2)
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name, want string // of the faults; "": none
		change     func(p *tape)
	}{
		{"as it should be", "", (*tape).all},
		{"stored twice", "", func(p *tape) { p.memory(5, 1, 1, 2); p.all() }},
		{"stored twice, not the same", "is there twice, with different events", func(p *tape) { p.memory(5, 1, 1, 1); p.all() }},
		{"a hole", "seq 3 of memory comes after 1", func(p *tape) { p.memory(5, 1, 1, 2); p.memory(5, 3, 2, 1); p.memory(6, 1, 3, 2) }},
		{"an earlier run behind a later one", "after a later run has begun", func(p *tape) { p.all(); p.memory(5, 3, 2, 0) }},
		{"a run is not there", "1 runs of producers are in the streams, want 2", func(p *tape) { p.memory(5, 1, 1, 2); p.memory(5, 2, 2, 1) }},
		{"a call is not there", "1 calls of cuMemAlloc_v2 are in the streams, the stub counted 2", func(p *tape) {
			p.memory(5, 1, 1, 1)
			p.memory(5, 2, 2, 1)
			p.memory(6, 1, 3, 2)
		}},
		{"a process is not there", "nothing of it is in the streams", func(p *tape) { p.all(); p.program(4, 23, 24, "complete") }},
		{"a call too many, of one across", "across a change: 3 calls of cuMemAlloc_v2", func(p *tape) {
			p.memory(5, 1, 1, 2)
			p.memory(5, 2, 2, 3)
			p.memory(6, 1, 3, 2)
		}},
		{"leak does not know it", "leak does not know it", func(p *tape) { p.all(); delete(p.views.leak, id(3)) }},
		{"leak has another amount", "8 unfreed; the stub counted 16", func(p *tape) { p.all(); p.views.leak[id(3)].UnfreedBytes = 8 }},
		{"leak has another number", "3 calls of cuMemAlloc_v2, the stub counted 2", func(p *tape) { p.all(); p.views.leak[id(3)].Calls[0].OK = 3 }},
		{"leak has a gap", "leak: gap", func(p *tape) { p.all(); p.views.leak[id(3)].Evidence = "gap" }},
		{"launch has kernels that did not run", "launch: map[k:1], the stub counted map[]", func(p *tape) {
			p.all()
			p.views.launch[id(1)] = &launch.Process{Funcs: []launch.Func{{Mangled: "k", Launches: 1}}}
		}},
		{"one across is right, and called complete", "", func(p *tape) { p.all(); p.memory(6, 2, 4, 2); p.program(4, 9, 19, "complete") }},
		{"one across is wrong, and says so", "", func(p *tape) { p.all(); p.views.leak[id(2)].UnfreedBytes = 8 }},
		{"one across is wrong, and called complete", "leak calls it complete", func(p *tape) {
			p.all()
			p.views.leak[id(2)].UnfreedBytes, p.views.leak[id(2)].Evidence = 8, "complete"
		}},
		{"an older producer told it so at its end", "", func(p *tape) {
			p.all()
			p.ran[1].ended = second(11)
			p.views.leak[id(2)].UnfreedBytes, p.views.leak[id(2)].Evidence = 8, "complete"
			p.memory(6, 2, 4, 0)
			p.program(4, 9, 19, "gap")
		}},
		{"today's told it so at its end", "leak calls it complete", func(p *tape) {
			p.all()
			p.ran[2].ended = second(30).Add(time.Millisecond)
			p.views.leak[id(3)].UnfreedBytes = 8
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newTape(t)
			c.change(p)
			compare(p.stored, p.windows, p.ran, p.views)
			switch err := p.stored.err(); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestOwned(t *testing.T) {
	p := &cluster.Process{Name: "leak", Dir: t.TempDir()}
	text := `time=2026-11-21T23:17:38Z level=INFO msg="shard is owned" consumer=leak instance=a shard=0 epoch=2 seq=405 bytes=13278 batches=200 duplicates=0
time=2026-11-21T23:17:39Z level=INFO msg="shard is free" consumer=leak seq=9 batches=9
`
	if err := os.WriteFile(p.Log(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := owned(p); !slices.Equal(got, []taking{{405, 200}}) {
		t.Errorf("%+v", got)
	}
}

func TestLastReport(t *testing.T) {
	const header = "HOST      PID  COMMAND   STATE    LIVE      ALLOCATIONS  PEAK       UNFREED AT EXIT  EVIDENCE\n"
	row := func(pid string) string {
		return hostName + "  " + pid + "  workload  ended    0 B                 0  24.00 MiB         8.00 MiB  complete\n"
	}
	path := filepath.Join(t.TempDir(), "log")
	text := header + row("41") + "1 processes, 0 B live in 0 allocations, 8.00 MiB unfreed at exit\n\ntime=x level=INFO msg=y\n" + header + row("42") + "1 processes\n\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := lastReport(path); err != nil || !maps.Equal(got, map[uint32]oldRow{42: {"ended", "8.00 MiB", "complete"}}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("no report"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lastReport(path); err == nil {
		t.Error("no error for a log without a report")
	}
}

package leak

import (
	"fmt"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

func TestEvidence(t *testing.T) {
	t.Parallel()
	lose := func(h *consumertest.Host, cause schema.Loss, n uint64) { h.Header.Lost[cause] = n }
	tests := []struct {
		name string
		run  func(tr *Tracker, h *consumertest.Host, p *consumertest.Process)
		want string
	}{
		{"nothing lost", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {}, complete},
		{"attached late", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			p.Late = true
		}, late},
		{"loss rose", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			lose(h, schema.LossControlRing, 1)
		}, gap},
		{"late and a gap", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			p.Late = true
			lose(h, schema.LossRead, 1)
		}, gap},
		{"launches lost", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			lose(h, schema.LossBulkRing, 1)
		}, complete},
		{"blocks of PyTorch's allocator lost", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			lose(h, schema.LossTensorRing, 1)
		}, complete},
		{"batches dropped by the spool", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			lose(h, schema.LossSpool, 1)
		}, complete},
		{"loss reported by a heartbeat", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			lose(h, schema.LossState, 3)
			apply(t, tr, h.Heartbeat())
		}, gap},
		{"lost batches reported by the runtime", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			tr.Lost("test", "gpu-01", "boot-1", 2)
		}, gap},
		{"no lost batches", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			tr.Lost("test", "gpu-01", "boot-1", 0)
		}, complete},
		{"lost batches of another host", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			tr.Lost("test", "gpu-02", "boot-1", 2)
		}, complete},
		{"producer restarted", func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			h.Header.Run = 1_000
		}, gap},
		{"producer restarted, then a late batch of the earlier run",
			func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
				h.Header.Run = 1_000
				apply(t, tr, h.Heartbeat())
				h.Header.Run = 1
			}, gap},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			p := h.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1)
			tracker := New(Config{})
			apply(t, tracker, h.Batch())
			test.run(tracker, h, p)
			p.Alloc(1, 0x2000, 8, 2_000, 1)
			apply(t, tracker, h.Batch())
			if got := tracker.Report().Processes[0].Evidence; got != test.want {
				t.Errorf("evidence %q, want %q", got, test.want)
			}
			h.Process(43, 3_000, "later").Alloc(1, 0x1000, 8, 3_100, 1)
			apply(t, tracker, h.Batch())
			if got := tracker.Report().Processes[1].Evidence; got != complete {
				t.Errorf("a process that began afterwards has evidence %q, want complete", got)
			}
		})
	}
}

// A process that began before the producer's run, made no call in it and is not in the producer's list has ended.
func TestProcessMissingFromListEnds(t *testing.T) {
	t.Parallel()
	const run = 1_000
	tests := []struct {
		name  string
		start schema.KTime
		then  func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) // runs before the list arrives
		older []uint64
		ended bool
	}{
		{"it is not in the list", 50, nil, []uint64{7, 41}, true},
		{"the list is empty", 50, nil, []uint64{}, true},
		{"it is in the list", 50, nil, []uint64{43, 42, 7}, false},
		{"no list", 50, nil, nil, false},
		{"it began later", 1_001, nil, []uint64{}, false},
		{"it made a call", 50, func(tr *Tracker, h *consumertest.Host,
			p *consumertest.Process) {
			p.Free(1, 0x9000, 1_100, 1)
		}, []uint64{}, false},
		{"it made a call before the clock was set", 50,
			func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
				p.Free(1, 0x9000, 1_100, 1)
				apply(t, tr, h.Batch())
				h.Header.ClockOffset += 1e12
			}, []uint64{}, false},
		{"the clock was set back", 50, func(tr *Tracker, h *consumertest.Host,
			p *consumertest.Process) {
			h.Header.ClockOffset -= 1e12
		}, []uint64{}, true},
		{"the list comes from an earlier run", 50, func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			apply(t, tr, h.Heartbeat())
			h.Header.Run = run - 1
		}, []uint64{}, false},
		{"the list comes from another boot", 50, func(tr *Tracker, h *consumertest.Host, p *consumertest.Process) {
			h.Header.BootID, h.Header.ClockOffset = "boot-0", h.Header.ClockOffset-1
		}, []uint64{}, false},
	}
	for i := range 2 * len(tests) {
		test, restored := tests[i/2], i%2 == 1
		t.Run(fmt.Sprint(test.name, ", restored ", restored), func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			p := h.Process(42, test.start, "train").Alloc(1, 0x1000, 8, 100, 1)
			other := consumertest.Memory(t, "gpu-02")
			other.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1)
			tracker := New(Config{})
			apply(t, tracker, h.Batch())
			apply(t, tracker, other.Batch())
			h.Header.Run = run
			if test.then != nil {
				test.then(tracker, h, p)
			}
			if restored {
				tracker = consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
			}
			if test.older != nil {
				h.Older(test.older...)
			}
			apply(t, tracker, h.Batch())
			for _, got := range tracker.Report().Processes {
				ended := test.ended && got.ID.Host == "gpu-01"
				unfreed := map[bool]uint64{true: 8}[ended]
				if got.Ended != ended || got.UnfreedBytes != unfreed || got.LiveBytes != 8-unfreed || ended &&
					got.Evidence != gap {
					t.Errorf("%s: ended %t, %d bytes live, %d unfreed, evidence %s; want ended %t", got.ID.Host,
						got.Ended,
						got.LiveBytes, got.UnfreedBytes, got.Evidence, ended)
				}
			}
		})
	}
}

// A process may have begun unseen inside lost batches.
func TestProcessBegunInsideGap(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	h.Process(42, 50, "first").Alloc(1, 0x1000, 8, 100, 1)
	apply(t, tracker, h.Batch())
	tracker.Lost("test", "gpu-01", "boot-1", 1)
	h.Process(43, 150, "inside").Alloc(1, 0x1000, 8, 200, 1)
	apply(t, tracker, h.Batch())
	if got := tracker.Report().Processes[1].Evidence; got != gap {
		t.Errorf("evidence %q, want gap", got)
	}
}

// Calls between two runs of the producer were not seen. A process that begins in the second run is complete, although
// heartbeats come before its first batch.
func TestGapEndsWithTheNextRun(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	h.Process(42, 50, "before").Alloc(1, 0x1000, 8, 100, 1)
	apply(t, tracker, h.Batch())
	h.Header.Run = 1_000
	apply(t, tracker, h.Heartbeat())
	h.Process(43, 2_000, "after").Alloc(1, 0x2000, 8, 2_100, 1)
	apply(t, tracker, h.Batch())
	h.Process(44, 900, "between").Alloc(1, 0x3000, 8, 2_200, 1)
	apply(t, tracker, h.Batch())
	for _, p := range tracker.Report().Processes {
		if want := map[string]string{"before": gap, "between": gap, "after": complete}[p.Comm]; p.Evidence != want {
			t.Errorf("%s: evidence %s, want %s", p.Comm, p.Evidence, want)
		}
	}
}

// A later gap does not change the evidence of an ended process.
func TestGapAfterExitChangesNothing(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	h.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1).Exit(110)
	apply(t, tracker, h.Batch())
	tracker.Lost("test", "gpu-01", "boot-1", 1)
	if got := tracker.Report().Processes[0].Evidence; got != complete {
		t.Errorf("evidence %q, want complete", got)
	}
}

// After Forget, the evidence of a process is a gap: its earlier memory is unknown.
func TestForgottenHostReturnsWithGap(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	p := h.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1)
	apply(t, tracker, h.Batch())
	tracker.Forget("test", "gpu-01")
	tracker.Lost("test", "gpu-01", "boot-1", 1)
	apply(t, tracker, h.Heartbeat())
	p.Alloc(1, 0x2000, 16, 200, 1)
	h.Process(43, 250, "later").Alloc(1, 0x1000, 8, 300, 1)
	apply(t, tracker, h.Batch())
	if ps := tracker.Report().Processes; len(ps) != 2 || ps[0].Evidence != gap || ps[0].LiveBytes != 16 ||
		ps[1].Evidence != complete {
		t.Errorf("got %+v", ps)
	}
}

func TestReusedPIDEndsItsEarlierOwner(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	h.Process(42, 50, "first").Alloc(1, 0x1000, 8, 100, 1)
	apply(t, tracker, h.Batch())
	h.Process(42, 500, "second").Alloc(1, 0x1000, 16, 600, 1)
	apply(t, tracker, h.Batch())
	ps := tracker.Report().Processes
	if !ps[0].Ended || ps[0].UnfreedBytes != 8 || ps[1].Ended || ps[1].LiveBytes != 16 {
		t.Errorf("got %+v", ps)
	}
}

// Events of the earlier owner of a PID still count for it, even in the batch that first names the later owner.
func TestReusedPIDWithinBatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		last    func(p *consumertest.Process)
		unfreed uint64
	}{
		{"its exit was seen", func(p *consumertest.Process) {
			p.Free(1, 0x1000, 20, 1).Alloc(1, 0x5000, 3, 22, 1).Free(1, 0x5000, 24, 1).Exit(25)
		}, 0},
		{"its exit was not seen", func(p *consumertest.Process) {
			p.Alloc(1, 0x5000, 3, 22, 1).Free(1, 0x1000, 24,
				1)
		}, 3},
	}
	for i := range 2 * len(tests) {
		test, known := tests[i/2], i%2 == 0
		t.Run(fmt.Sprint(test.name, ", known before ", known), func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			tracker := New(Config{})
			first := h.Process(42, 1, "first").Alloc(1, 0x1000, 8, 10, 1)
			if known {
				apply(t, tracker, h.Batch())
			}
			test.last(first)
			h.Process(42, 30, "second").Alloc(1, 0x1000, 16, 40, 1)
			apply(t, tracker, h.Batch())
			r := tracker.Report()
			ps := r.Processes
			if !ps[0].Ended || ps[0].LiveBytes != 0 || ps[0].UnfreedBytes != test.unfreed || ps[1].Ended ||
				ps[1].LiveBytes != 16 || r.Counters != (Counters{}) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestRebootEndsProcesses(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	h.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1)
	h.Process(43, 60, "before").Alloc(1, 0x1000, 8, 100, 1).Exit(110)
	apply(t, tracker, h.Batch())
	h.Header.BootID, h.Header.ClockOffset = "boot-2", h.Header.ClockOffset+int64(time.Hour)
	apply(t, tracker, h.Heartbeat())
	if p := tracker.Report().Processes[0]; !p.Ended || p.UnfreedBytes != 8 || p.LiveBytes != 0 || p.Evidence != gap {
		t.Errorf("got %+v", p)
	}
	if p := tracker.Report().Processes[1]; p.Evidence != complete {
		t.Errorf("a process whose exit was seen has evidence %q, want complete", p.Evidence)
	}
}

// The clock of a host may be set after boot. The correction ends the processes of the earlier boot, and late batches
// of that boot do not affect the newer one.
func TestClockCorrectionEndsEarlierBoot(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		h := consumertest.Memory(t, "gpu-01")
		tracker := New(Config{})
		booted := h.Header.ClockOffset
		h.Process(42, 50, "before").Alloc(1, 0x1000, 8, 100, 1)
		apply(t, tracker, h.Batch())
		h.Header.BootID, h.Header.ClockOffset = "boot-2", 0
		p := h.Process(42, 50, "after").Alloc(1, 0x1000, 16, 100, 1)
		apply(t, tracker, h.Batch())
		h.Header.BootID, h.Header.ClockOffset = "boot-1", booted+1
		apply(t, tracker, h.Heartbeat())
		if got := tracker.Report(); got.Totals.LiveBytes != 24 {
			t.Fatalf("%d bytes live before the clock was set, want 24", got.Totals.LiveBytes)
		}
		if restored {
			tracker = consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
		}
		h.Header.BootID, h.Header.ClockOffset = "boot-2", booted+int64(time.Hour)
		p.Free(1, 0x1000, 200, 1).Alloc(1, 0x1000, 32, 300, 1)
		apply(t, tracker, h.Batch())
		ps := tracker.Report().Processes
		if !ps[0].Ended || ps[0].UnfreedBytes != 8 || ps[0].Evidence != gap || ps[1].Ended || ps[1].LiveBytes != 32 ||
			ps[1].UnfreedBytes != 0 {
			t.Errorf("restored %t: got %+v", restored, ps)
		}
	}
}

// Each boot of a host with a broken clock seems to be older than those before.
func TestBootsInNoOrderAreLimited(t *testing.T) {
	t.Parallel()
	h, tracker := consumertest.Memory(t, "gpu-01"), New(Config{})
	for n := range 100 {
		h.Header.BootID = fmt.Sprint("boot-", n)
		h.Header.ClockOffset--
		h.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1)
		apply(t, tracker, h.Batch())
		tracker.Lost("test", "gpu-01", fmt.Sprint("lost-", n), 1)
	}
	if n := len(tracker.hosts[snapshot.HostID{Cluster: "test", Host: "gpu-01"}].boots); n > maxBoots {
		t.Errorf("%d boots are kept", n)
	}
	consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
}

func TestEqualPIDsAndAddressesAreSeparate(t *testing.T) {
	t.Parallel()
	tracker := New(Config{})
	for _, hostname := range []string{"gpu-01", "gpu-02"} {
		h := consumertest.Memory(t, hostname)
		h.Process(42, 50, "train").Alloc(1, 0x1000, 8, 100, 1)
		h.Process(43, 50, "train").Alloc(1, 0x1000, 16, 101, 1).Free(1, 0x1000, 110, 1)
		apply(t, tracker, h.Batch())
	}
	r := tracker.Report()
	if len(r.Processes) != 4 || r.Totals.LiveBytes != 16 || r.Totals.LiveAllocations != 2 ||
		r.Counters != (Counters{}) {
		t.Errorf("got %+v", r)
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	p := h.Process(42, 50, "train")
	p.Alloc(1, 0x1000, 1, 100, 1)
	p.GPU = &schema.GPU{Ordinal: 1}
	p.Alloc(1, 0x2000, 2, 101, 1)
	p.GPU = &schema.GPU{UUID: "GPU-b", Ordinal: 1} // later events name the UUID
	p.Alloc(1, 0x3000, 4, 102, 1)
	p.GPU = &schema.GPU{UUID: "GPU-a", Ordinal: 0}
	p.Alloc(1, 0x4000, 8, 103, 1).Free(1, 0x3000, 110, 1) // freed from another current device
	apply(t, tracker, h.Batch())
	got := tracker.Report().Processes[0].GPUs
	want := []GPUUse{
		{Ordinal: -1, LiveBytes: 1, LiveAllocations: 1, PeakBytes: 1, PeakAt: wall(101)},
		{UUID: "GPU-a", Ordinal: 0, LiveBytes: 8, LiveAllocations: 1, PeakBytes: 8, PeakAt: wall(104)},
		{UUID: "GPU-b", Ordinal: 1, LiveBytes: 2, LiveAllocations: 1, PeakBytes: 6, PeakAt: wall(103)},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
}

// A forgotten process leaves nothing in the shared table.
func TestForgottenProcessFreesItsEntries(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{KeepEnded: 10 * time.Minute})
	h.Process(42, 50, "short").Alloc(1, 0x1000, 8, 100, 1).Exit(200)
	long := h.Process(43, 50, "long").Alloc(1, 0x1000, 16, 100, 1)
	apply(t, tracker, h.Batch())
	for minute := range 12 {
		at := schema.KTime(time.Duration(minute+1) * time.Minute * 11 / 10)
		long.Alloc(1, 0x2000, 1, at, 1).Free(1, 0x2000, at+10, 1)
		apply(t, tracker, h.Batch())
	}
	r := tracker.Report()
	if len(r.Processes) != 1 || r.Processes[0].Comm != "long" || r.Processes[0].LiveBytes != 16 {
		t.Errorf("got %+v, want only the process named long", r.Processes)
	}
	if n := tracker.workloadBytes("short"); n != 8 {
		t.Errorf("the forgotten process's workload counts %d allocated bytes, want 8", n)
	}
}

func (t *Tracker) workloadBytes(comm string) (allocated uint64) {
	for l, w := range t.scrape().workloads {
		if l.Comm == comm {
			allocated += w.allocated
		}
	}
	return allocated
}

// A renamed process counts under its new name once it has no live memory, so that every workload frees only its own
// allocations.
func TestRenameWaitsUntilNothingIsHeld(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 50, "python").Alloc(1, 0x1000, 100, 100, 1)
	p.Comm = "worker"
	p.Alloc(1, 0x2000, 10, 110, 1).Free(1, 0x1000, 120, 1).Free(1, 0x2000, 130, 1).Alloc(1, 0x3000, 7, 140, 1)
	tracker := New(Config{})
	apply(t, tracker, h.Batch())
	for w, want := range map[string][2]uint64{"python": {110, 110}, "worker": {7, 0}} {
		id := workloadID{process.Workload{HostID: snapshot.HostID{Cluster: "test", Host: "gpu-01"}, Comm: w},
			schema.ClassDevice}
		if got := tracker.workloads.index[id]; got == nil || got.allocated != want[0] || got.freed != want[1] {
			t.Errorf("%s: got %+v, want %v", w, got, want)
		}
	}
	if got := tracker.Report().Processes[0]; got.Comm != "worker" || got.LiveBytes != 7 {
		t.Errorf("got %+v", got)
	}
}

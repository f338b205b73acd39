package leak

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// TestRestoredVerdictsGoOn: a fold that is saved and restored at any step goes on as if nothing had happened.
func TestRestoredVerdictsGoOn(t *testing.T) {
	t.Parallel()
	cfg := Config{}
	s := newSimulation(t, cfg)
	s.lossy = map[int]bool{}
	s.load()
	s.every(30*time.Second, 50*time.Minute, func(int) { s.alloc(9, 16*mib) })
	if state := s.verdict(0).State; state != trend.Suspect {
		t.Fatalf("the program is %s", state)
	}
	last, shown := consumertest.Sections(t, s.tracker), view(t, s.tracker)
	part, taken := New(cfg), 0
	for k := 0; k <= len(s.steps); k += 31 {
		consumertest.Take(t, part, s.steps[taken:k]...)
		taken = k
		saved := consumertest.Sections(t, part)
		again := consumertest.Restore(t, New(cfg), saved)
		if got, want := view(t, again), view(t, part); got != want {
			t.Fatalf("restored after %d steps, it shows\n%s\nwant\n%s", k, got, want)
		}
		consumertest.Take(t, again, s.steps[k:]...)
		if got := consumertest.Sections(t, again); !reflect.DeepEqual(got, last) || view(t, again) != shown {
			t.Fatalf("restored after %d steps, it ends as\n%s\nwant\n%s", k, view(t, again), shown)
		}
	}
}

// TestOtherWindowsBeginAnew: a snapshot with windows of another length keeps memory and peaks, but no trend.
func TestOtherWindowsBeginAnew(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.until(45*time.Minute, func() { s.alloc(9, 16*mib); s.sleep(30 * time.Second) })
	s.sleep(heartbeat)
	before := s.tracker.Report()
	s.tracker = consumertest.Restore(t, New(Config{Window: 10 * time.Second}), consumertest.Sections(t, s.tracker))
	after := s.tracker.Report()
	if got := after.Processes[0].Verdicts[0]; got.State != trend.Warming || len(got.Groups) > 0 {
		t.Errorf("verdict %+v", got)
	}
	if after.Totals != before.Totals || after.Processes[0].GPUs[0] != before.Processes[0].GPUs[0] {
		t.Errorf("got %+v, want %+v", after.Processes[0].GPUs, before.Processes[0].GPUs)
	}
	s.until(55*time.Minute, func() { s.alloc(9, 16*mib); s.sleep(5 * time.Second) })
	s.sleep(heartbeat)
	if v := s.verdict(0); v.State != trend.Suspect {
		t.Errorf("at the end: %s", s)
	}
}

// TestGapsExcludeWindows: windows in which events were lost do not count, whatever reported the loss.
func TestGapsExcludeWindows(t *testing.T) {
	t.Parallel()
	minute := func(s *simulation) int { return int(s.now / schema.KTime(time.Minute)) }
	for _, row := range []struct {
		name string
		lose func(s *simulation)
		want int // excluded windows after 35 minutes
	}{
		{"no loss", func(*simulation) {}, 0},
		{"loss in the launch rings", func(s *simulation) { s.host.Header.Lost[schema.LossBulkRing]++ }, 0},
		{"a full ring", func(s *simulation) { s.host.Header.Lost[schema.LossControlRing]++ }, 1},
		{"a full ring, then silence", func(s *simulation) {
			s.host.Header.Lost[schema.LossControlRing]++
			s.sleep(5 * time.Minute)
		}, 1},
		{"lost batches", func(s *simulation) { s.tracker.Lost("test", "gpu-01", "boot-1", 2) }, 1},
		{"a producer that was away for three minutes", func(s *simulation) {
			s.p.Free(1, 1, s.now, 1) // an event between the heartbeats
			consumertest.Take(t, s.tracker, consumertest.Steps(s.host.Message())...)
			s.now += schema.KTime(3 * time.Minute)
			s.beat = s.now + schema.KTime(heartbeat)
			s.host.Header.Run = uint64(s.now)
		}, 4},
		{"fifteen minutes with loss", func(s *simulation) {
			for range 15 {
				s.host.Header.Lost[schema.LossState]++
				s.sleep(time.Minute)
			}
		}, 15},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSimulation(t, Config{})
			start := minute(s)
			for minute(s) < start+10 {
				s.alloc(9, mib)
				s.sleep(5 * time.Second)
			}
			s.sleep(25 * time.Second)
			row.lose(s)
			for minute(s) < start+35 {
				s.alloc(9, mib)
				s.sleep(5 * time.Second)
			}
			s.sleep(heartbeat)
			d := s.tracker.table.All()[0].State.devices[0].verdict
			want := fmt.Sprintf("%d of 30 windows have lost events", row.want)
			if d.Excluded != row.want || d.Windows != 30-row.want || (d.State == trend.Unknown) != (row.want > 13) ||
				d.State == trend.Unknown && s.verdict(0).Why != want {
				t.Errorf("%d of %d windows are excluded, want %d: %s", d.Excluded, d.Windows+d.Excluded, row.want, s)
			}
		})
	}
}

// TestLostFreesAreNoGrowth: memory whose frees were lost stays live, again and again.
func TestLostFreesAreNoGrowth(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.lossy = map[int]bool{}
	s.onWindow = func(s *simulation) {
		if s.verdict(0).State.Grows() {
			t.Error(s)
		}
	}
	s.load()
	for range 12 {
		held := s.allocs(3, 10, 64*mib, time.Second)
		s.until(time.Duration(s.minutes()+5)*time.Minute, s.work)
		s.losing = true
		s.free(held...)
		s.sleep(heartbeat)
	}
}

// TestTeardownKeepsTheVerdict: a program that leaks frees all of its memory and ends a moment later. A window closes in
// between.
func TestTeardownKeepsTheVerdict(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.p.MemInfo(10*gib, 80*gib, s.now)
	var leaked []uint64
	s.until(40*time.Minute, func() { leaked = append(leaked, s.alloc(9, 16*mib)); s.sleep(30 * time.Second) })
	before := s.verdict(0)
	s.free(leaked...)
	s.sleep(time.Minute + heartbeat)
	s.p.Exit(s.now)
	s.flush()
	v := s.verdict(0)
	if before.State != trend.Suspect || v.State != trend.Suspect || v.SuspectBytes == 0 || len(v.Groups) == 0 {
		t.Errorf("%s with %d bytes before the end, then %s", before.State, before.SuspectBytes, s)
	}
	if before.FullIn == 0 || v.FullIn != 0 || v.Full {
		t.Errorf("the GPU is full in %s, after the end in %s (full: %t)", before.FullIn, v.FullIn, v.Full)
	}
	if live := s.tracker.Report().Totals.LiveBytes; live != 0 {
		t.Errorf("%d bytes are live", live)
	}
}

// TestBootsHaveTheirOwnTime: after a reboot KTime begins again.
func TestBootsHaveTheirOwnTime(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.until(32*time.Minute, func() { s.alloc(9, 16*mib); s.sleep(30 * time.Second) })
	s.host.Header.BootID, s.host.Header.ClockOffset = "boot-2", s.host.Header.ClockOffset+int64(2000*time.Hour)
	s.now, s.beat, s.host.Header.Run = 500, 500+schema.KTime(heartbeat), 1
	s.p.Start = 400
	s.until(10*time.Minute, func() { s.alloc(9, 16*mib); s.sleep(30 * time.Second) })
	all := s.tracker.Report().Processes
	if old := all[0].Verdicts[0].State; old != trend.Suspect || !all[0].Ended {
		t.Errorf("the process before the reboot is %s", old)
	}
	if young := all[1].Verdicts[0]; young.State != trend.Warming || !strings.HasPrefix(young.Why, "9 of the first 17") {
		t.Errorf("the process after the reboot: %+v", young)
	}
}

// TestLateProcessesAreAtMostGrowing while they free memory that was never seen.
func TestLateProcessesAreAtMostGrowing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		late  bool
		frees time.Duration // until then
		want  trend.State
	}{
		{false, time.Hour, trend.Suspect}, {true, 0, trend.Suspect}, {true, time.Hour, trend.Growing},
		{true, 20 * time.Minute, trend.Suspect},
	} {
		s := newSimulation(t, Config{})
		s.p.Late = row.late
		s.until(55*time.Minute, func() {
			s.alloc(9, 16*mib)
			if s.minutes() < int(row.frees/time.Minute) {
				s.p.Free(9, 0x100, s.now, 1)
			}
			s.sleep(30 * time.Second)
		})
		v := s.verdict(0)
		if v.State != row.want || strings.Contains(v.Why, "at most growing") != (row.want == trend.Growing) {
			t.Errorf("late %t, unmatched frees for %s: %s, want %s: %s", row.late, row.frees, v.State, row.want, v.Why)
		}
	}
}

// TestChangesAreReported in order, with the evidence, and when a suspect ends.
func TestChangesAreReported(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"exit", "exec", "forget"} {
		var got []string
		var tracker *Tracker
		var seq uint64
		s := newSimulation(t, Config{OnVerdict: func(c Change) {
			tracker.Report() // is not locked
			got = append(got, fmt.Sprintf("%s %s→%s %t", c.Verdict.GPU, c.From, c.Verdict.State, c.Ended))
			if c.ID.PID != 42 || c.Run == 0 || c.Seq != seq {
				t.Errorf("pid %d, run %d, batch %d, want %d", c.ID.PID, c.Run, c.Seq, seq)
			}
		}})
		tracker = s.tracker
		leaking := func() {
			seq = s.host.Header.Seq + 1
			s.alloc(9, 16*mib)
			s.sleep(heartbeat)
		}
		s.until(35*time.Minute, leaking)
		seq = s.host.Header.Seq + 1
		switch end {
		case "exit":
			s.p.Exit(s.now)
			s.flush()
		case "exec":
			s.p.Exec("next", s.now)
			s.flush()
		case "forget":
			seq--
			tracker.Forget("test", "gpu-01")
		}
		want := []string{"GPU-0 warming→growing false", "GPU-0 growing→suspect false", "GPU-0 suspect→suspect true"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", end, got, want)
		}
		if end == "exit" {
			if v := s.verdict(0); v.State != trend.Suspect || v.SuspectBytes == 0 || len(v.Groups) == 0 {
				t.Errorf("the last verdict is not kept: %+v", v)
			}
		}
	}
}

// TestSizeOfTheGPU: half a per cent of the GPU makes a suspect, and the rest of it says when it is full.
func TestSizeOfTheGPU(t *testing.T) {
	t.Parallel()
	const perMinute, minutes = 10, 33
	for _, row := range []struct {
		name   string
		uuid   string
		bytes  uint64
		info   func(s *simulation)
		want   trend.State
		fullIn time.Duration
	}{
		{"unknown", "GPU-0", 0, nil, trend.Suspect, 0},
		{"8 GiB", "GPU-0", 8 * gib, nil, trend.Suspect,
			time.Duration(8*1024-perMinute*minutes) * time.Minute / perMinute},
		{"80 GiB", "GPU-0", 80 * gib, nil, trend.Growing,
			time.Duration(80*1024-perMinute*minutes) * time.Minute / perMinute},
		{"as cuMemGetInfo says", "GPU-0", 0, func(s *simulation) { s.p.MemInfo(3*gib, 4*gib, s.now) }, trend.Suspect,
			time.Duration(1024-perMinute*(minutes-1)) * time.Minute / perMinute},
		{"as cuMemGetInfo says of a GPU without UUID", "", 0, func(s *simulation) { s.p.MemInfo(3*gib, 80*gib, s.now) },
			trend.Growing, time.Duration(77*1024-perMinute*(minutes-1)) * time.Minute / perMinute},
		{"full", "GPU-0", 0, func(s *simulation) { s.p.MemInfo(4*gib, 4*gib, s.now) }, trend.Suspect, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSimulation(t, Config{})
			s.p.GPU = &schema.GPU{UUID: row.uuid, Bytes: row.bytes}
			for i := range minutes {
				s.alloc(9, perMinute*mib)
				if i == 0 && row.info != nil {
					row.info(s)
				}
				s.sleep(time.Minute - time.Millisecond)
			}
			s.sleep(heartbeat)
			if v := s.verdict(0); v.State != row.want || (v.FullIn-row.fullIn).Abs() > time.Second {
				t.Errorf("full in %s, want %s %s: %s", v.FullIn, row.want, row.fullIn, s)
			}
		})
	}
}

// TestEachGPUHasItsVerdict: of two GPUs, the one whose memory grows is suspect. Physical memory that only a mapping
// keeps is named, too.
func TestEachGPUHasItsVerdict(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.load()
	s.p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 1}
	n := uint64(0)
	s.every(time.Minute, 40*time.Minute, func(int) {
		n++
		s.p.Create(9, 1<<20+n, 32*mib, s.now, 1).Map(9, n<<40, 32*mib, 1<<20+n, s.now+2, 1).
			Release(9, 1<<20+n, s.now+4, 1)
	})
	s.sleep(heartbeat)
	p := s.tracker.Report().Processes[0]
	if a, b := p.Verdicts[0], p.Verdicts[1]; a.GPU != "GPU-0" || a.State != trend.Steady || b.GPU != "GPU-1" ||
		b.Ordinal != 1 || b.State != trend.Suspect || len(b.Groups) != 1 || b.Groups[0].Class != "vmm" ||
		b.Groups[0].SizeClass != 32*mib || b.Groups[0].Bytes != b.Groups[0].Allocations*32*mib ||
		b.Groups[0].TID != 9 || b.SuspectBytes == 0 {
		t.Errorf("got %+v\n%+v", a, b)
	}
	page := string(consumertest.Page(t, s.tracker))
	for _, want := range []string{
		`gputap_leak_suspected_bytes{UUID="GPU-0",cluster="test",comm="serve",container="",gpu="0",hostname="gpu-01",job="",pid="42",pod="",unit="",user=""} 0`,
		fmt.Sprintf(`gputap_leak_suspected_bytes{UUID="GPU-1",cluster="test",comm="serve",container="",gpu="1",hostname="gpu-01",job="",pid="42",pod="",unit="",user=""} `+
			"%s", strconv.FormatFloat(float64(p.Verdicts[1].SuspectBytes), 'g', -1, 64)),
		`gputap_leak_growth_bytes_per_second{UUID="GPU-1",cluster="test",comm="serve",container="",gpu="1",hostname="gpu-01",job="",pid="42",pod="",unit="",user=""} 559240.5`,
		`gputap_leak_oldest_allocation_age_seconds{UUID="GPU-1",`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}

// TestRetainedMemoryIsYoung: a handle that is retained again begins a new life, and its end leaves no old memory.
func TestRetainedMemoryIsYoung(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.onWindow = func(s *simulation) {
		if s.verdict(0).State.Grows() {
			t.Error(s)
		}
	}
	end := func(uint64) {}
	for n := uint64(1); n < 60; n++ {
		ptr, bytes := n<<40, n*32*mib
		s.p.Create(9, n, bytes, s.now, 1).Map(9, ptr, bytes, n, s.now+2, 1).Release(9, n, s.now+4, 1)
		end(n)
		s.sleep(time.Minute)
		s.p.Retain(9, n, ptr, s.now, 1)
		end = func(uint64) { s.p.Unmap(9, ptr, bytes, s.now+6, 1).Release(9, n, s.now+8, 1) }
	}
}

// TestBothScansFindTheSame: the live memory of a process in the slab is that in its indexes and mappings.
func TestBothScansFindTheSame(t *testing.T) {
	t.Parallel()
	fold, visited := shortKeep(), 0
	for _, step := range consumertest.Traffic(t, 1, 200) {
		consumertest.Take(t, fold, step)
		for _, p := range fold.table.All() {
			inSlab, inIndex := map[*allocation]int{}, map[*allocation]int{}
			fold.eachInSlab(p, func(a *allocation) { inSlab[a]++ })
			fold.eachInIndex(&p.State, func(e entry) { inIndex[e.allocation]++ })
			if visited += len(inSlab); !maps.Equal(inSlab, inIndex) || uint64(len(inSlab)) != p.State.held {
				t.Fatalf("process %d holds %d: %d in the slab, %d in its indexes", p.ID.PID, p.State.held, len(inSlab),
					len(inIndex))
			}
		}
	}
	if visited == 0 {
		t.Error("no memory was live")
	}
}

// TestPeaksHaveTheirTime compares the peak of each GPU with a replay.
func TestPeaksHaveTheirTime(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, Config{})
	s.load()
	s.until(10*time.Minute, s.work)
	s.flush()
	level, peak, at := uint64(0), uint64(0), schema.KTime(0)
	for _, e := range s.events {
		if level += e.bytes; e.bytes == 0 {
			level -= e.block.bytes
		}
		if level > peak {
			peak, at = level, e.at
		}
	}
	if g := s.tracker.Report().Processes[0].GPUs[0]; g.PeakBytes != peak || !g.PeakAt.Equal(wall(at)) {
		t.Errorf("peak %d at %s, want %d at %s", g.PeakBytes, g.PeakAt, peak, wall(at))
	}
}

// TestVerdictsCostNoAllocation: batches that open new windows allocate nothing.
func TestVerdictsCostNoAllocation(t *testing.T) {
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-1", Bytes: gib}
	tracker := New(Config{Window: time.Second})
	var batches []*schema.Batch
	for i := range schema.KTime(40) {
		at := (i + 1) * schema.KTime(time.Second)
		p.Alloc(1, 0x1000, 64, at, 1).Alloc(1, 0x2000, 64, at, 1).Free(1, 0x1000, at+9, 1).Free(1, 0x2000, at+9, 1)
		batches = append(batches, h.Batch())
	}
	apply(t, tracker, batches[0])
	i := 0
	if n := testing.AllocsPerRun(30, func() { i++; apply(t, tracker, batches[i]) }); n > 0 {
		t.Errorf("a batch costs %v allocations", n)
	}
}

func TestTopRowsCollapseEqualAllocations(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	p := h.Process(42, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-1"}
	for i := range uint64(30) {
		p.Alloc(7, 1<<30+i<<20, 20*mib, schema.KTime(1000-i), 1)
	}
	for i := range uint64(3) {
		p.Alloc(8, 1<<40+i<<20, 20*mib, 500, 1).Alloc(7, 1<<41+i<<20, 20*mib+1, schema.KTime(600+i), 1)
	}
	p.Call("cuMemAllocManaged", 7, schema.Memory{Time: 700, Ptr: 1 << 42, Bytes: 20 * mib})
	p.Alloc(7, 1<<43, 100*mib, 800, 1)
	apply(t, tracker, h.Batch())
	rows, unseen := tracker.TopRows(10)
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%d × %d = %d %s %d %s %s", r.Count, r.Bytes, r.TotalBytes, r.Class, r.TID, r.GPU,
			r.At.Format("05.999999999")))
	}
	want := []string{
		"30 × 20971520 = 629145600 device 7 GPU-1 20.000000972",
		"1 × 104857600 = 104857600 device 7 GPU-1 20.000000801",
		"3 × 20971521 = 62914563 device 7 GPU-1 20.000000601",
		"3 × 20971520 = 62914560 device 8 GPU-1 20.000000501",
		"1 × 20971520 = 20971520 managed 7 GPU-1 20.0000007",
	}
	if !reflect.DeepEqual(got, want) || unseen != 0 {
		t.Errorf("%d unseen, got\n%s\nwant\n%s", unseen, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if rows, _ := tracker.TopRows(2); len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
	if rows, _ := tracker.TopRows(-1); len(rows) != 0 {
		t.Errorf("%d rows, want none", len(rows))
	}
	if slices.ContainsFunc(rows, func(r TopRow) bool { return r.Partial }) {
		t.Errorf("all were visited, and a row is partial: %+v", rows)
	}
	const many = 20_000
	equal := New(Config{})
	p = h.Process(43, 1, "train")
	p.Alloc(7, 1<<50, 30*mib, 900, 1)
	for i := range uint64(rowScan) {
		p.Alloc(7, 1<<51+i<<20, mib, schema.KTime(1000+i), 1)
	}
	apply(t, equal, h.Batch())
	rows, _ = equal.TopRows(10)
	if len(rows) != 2 || !rows[0].Partial || rows[0].Bytes != mib || rows[1].Partial {
		t.Errorf("one allocation of 1 MiB was not visited: %+v", rows)
	}
	big := million(t, many)
	if _, unseen := big.TopRows(5); unseen != many-rowScan {
		t.Errorf("%d unseen, want %d", unseen, many-rowScan)
	}
	if !bytes.Contains(consumertest.Page(t, big), []byte("gputap_leak_suspected_bytes")) {
		t.Error("no series")
	}
}

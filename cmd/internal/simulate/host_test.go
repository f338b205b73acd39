package simulate

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// fleetOf returns a fleet that is not connected to NATS.
func fleetOf(t testing.TB, hosts int, perHost float64, seed uint64) *fleet {
	t.Helper()
	from, err := openRecording("")
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLife(from, perHost, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{life: l, Options: Options{
		Cluster: "sim", Seed: seed, Start: past, Hosts: hosts, BatchAge: time.Second,
	}}
}

// play calls each with every batch of a host until a time.
func play(h *host, until time.Duration, each func(batch)) {
	for {
		if due, _, _ := h.next(); due > schema.KTime(until) {
			return
		}
		each(h.make())
	}
}

// TestHostsShareNothing expects each process id, thread id, GPU, address and handle on one host, and each process in
// one life.
func TestHostsShareNothing(t *testing.T) {
	t.Parallel()
	f := fleetOf(t, 50, 3000, 1)
	type thing struct {
		what string
		v    any
	}
	owner := map[thing]int{}
	wrong, lives := 0, map[schema.ProcessID]bool{}
	var b schema.Batch
	decoder := schema.NewDecoder()
	for _, index := range []int{0, 1, 4, 48, 49} {
		own := func(what string, v any) {
			if was, ok := owner[thing{what, v}]; ok && was != index {
				t.Fatalf("%s %v is of hosts %d and %d", what, v, was, index)
			}
			owner[thing{what, v}] = index
		}
		h := f.host(index)
		if off := h.header.ClockOffset + int64(h.uptime) - past.UnixNano(); off != 0 {
			wrong++
		}
		own("boot", h.header.BootID)
		play(h, 25*time.Second, func(m batch) {
			if err := decoder.Decode(m.data, &b); err != nil {
				t.Fatal(err)
			}
			for i := range b.Processes {
				own("id", b.Processes[i].PID)
				lives[b.ID(&b.Processes[i])] = true
			}
			for _, th := range b.Threads {
				own("id", th.TID)
			}
			for _, g := range b.GPUs {
				own("GPU", g.UUID)
			}
			for _, fn := range b.Funcs {
				own("handle", fn.Handle)
			}
			for i := range min(b.Events, 500) {
				switch b.Kind {
				case schema.KindMemory:
					if p := b.Memory(i).Ptr; p != 0 {
						own("address", p)
					}
				case schema.KindCopy:
					own("address", b.Copy(i).Dst)
				}
			}
		})
	}
	if wrong != 1 {
		t.Errorf("%d wrong clocks, want that of host 4", wrong)
	}
	if len(lives) != 3*5 {
		t.Errorf("%d processes of 5 hosts with 3 lives", len(lives))
	}
}

// TestSameSeedMakesSameBytes also expects other bytes from another seed or start.
func TestSameSeedMakesSameBytes(t *testing.T) {
	t.Parallel()
	record := func(seed uint64, at time.Time) (all [][]byte) {
		f := fleetOf(t, 8, 3000, seed)
		f.Start, f.Lose = at, 0.2
		play(f.host(3), 15*time.Second, func(b batch) { all = append(all, b.data) })
		return all
	}
	first := record(1, past)
	equal := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	if len(first) < 20 || !equal(first, record(1, past)) {
		t.Errorf("%d batches are not the same again", len(first))
	}
	if equal(first, record(2, past)) || equal(first, record(1, past.Add(time.Second))) {
		t.Error("another seed or start makes the same")
	}
}

// TestLifeFoldsLikeTheRecording also expects no live process at the end of a life.
func TestLifeFoldsLikeTheRecording(t *testing.T) {
	t.Parallel()
	from, err := openRecording("")
	if err != nil {
		t.Fatal(err)
	}
	recorded, simulated := leak.New(leak.Config{}), leak.New(leak.Config{})
	events := 0
	for _, b := range from {
		events += b.Events
		if err := recorded.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	for name, perHost := range map[string]float64{"fast": 1e6, "slow": 50} {
		simulated = leak.New(leak.Config{})
		f := fleetOf(t, 1, perHost, 1)
		f.BatchAge = 0
		made := 0
		for _, s := range f.steps {
			made += s.batch.Events
		}
		if made != events+1 {
			t.Errorf("%s: %d events, want the recording's %d and an exit", name, made, events)
		}
		decoder := schema.NewDecoder()
		var b schema.Batch
		play(f.host(0), time.Duration(f.period)-1, func(m batch) {
			if err := decoder.Decode(m.data, &b); err != nil {
				t.Fatal(err)
			}
			if err := simulated.Apply(&b); err != nil {
				t.Fatal(err)
			}
		})
		want, got := recorded.Report(), simulated.Report()
		if len(want.Processes) != 1 || len(got.Processes) != 1 || want.Counters != got.Counters {
			t.Fatalf(
				"%s: %d processes, %+v; want %d, %+v", name, len(got.Processes), got.Counters, len(want.Processes),
				want.Counters,
			)
		}
		w, g := want.Processes[0], got.Processes[0]
		if g.PeakBytes != w.PeakBytes || g.UnfreedBytes != w.LiveBytes || g.LiveBytes != 0 || !g.Ended ||
			g.Evidence != "complete" ||
			g.HostUnfreedBytes != w.HostLiveBytes || len(g.Calls) != len(w.Calls) || w.LiveBytes == 0 {
			t.Errorf("%s:\n%+v, of\n%+v", name, g, w)
		}
		for i := range w.Calls {
			if g.Calls[i].Symbol != w.Calls[i].Symbol || g.Calls[i].OK != w.Calls[i].OK {
				t.Errorf("%s: %+v, want %+v", name, g.Calls[i], w.Calls[i])
			}
		}
	}
}

// TestEverySecondHasItsRate also expects no batch that spans more than its age.
func TestEverySecondHasItsRate(t *testing.T) {
	t.Parallel()
	const hosts, perHost, seconds = 10, 400, 30
	f := fleetOf(t, hosts, perHost, 1)
	var in [seconds + 1]int
	var b schema.Batch
	decoder := schema.NewDecoder()
	for i := range hosts {
		h := f.host(i)
		beats := 0
		play(h, seconds*time.Second, func(m batch) {
			if err := decoder.Decode(m.data, &b); err != nil {
				t.Fatal(err)
			}
			if b.Kind == schema.KindHost {
				beats++
			}
			if b.Last-b.First > schema.KTime(time.Second) {
				t.Errorf("a %s batch spans %d ns", b.Kind, b.Last-b.First)
			}
			for k := range b.Events {
				at := schema.KTime(b.Time().At(k))
				if at < h.uptime {
					t.Fatal("an event is before the start")
				}
				in[min((at-h.uptime)/schema.KTime(time.Second), seconds)]++
			}
		})
		if beats < 3 || beats > 4 {
			t.Errorf("host %d: %d heartbeats in 30 s", i, beats)
		}
	}
	for second, n := range in[2 : seconds-1] {
		if n < hosts*perHost*7/10 || n > hosts*perHost*13/10 {
			t.Errorf("second %d has %d events, want about %d", second+2, n, hosts*perHost)
		}
	}
}

// TestBuiltInProfileStartsTheRecordedRun also limits its size.
func TestBuiltInProfileStartsTheRecordedRun(t *testing.T) {
	t.Parallel()
	unpack := func(data []byte) []byte {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	whole, err := os.ReadFile("../../../schema/testdata/pytorch.batches.gz")
	if err != nil {
		t.Fatal(err)
	}
	own := unpack(pytorch)
	if !bytes.HasPrefix(unpack(whole), own) || len(own) < 100_000 || len(pytorch) > 200<<10 {
		t.Errorf("%d bytes, %d unpacked", len(pytorch), len(own))
	}
}

// BenchmarkMake makes the batches of a thousand hosts without publishing them.
func BenchmarkMake(b *testing.B) {
	f := fleetOf(b, 1000, 1000, 1)
	hosts := make([]*host, f.Hosts)
	for i := range hosts {
		hosts[i] = f.host(i)
	}
	events, i := 0, 0
	for b.Loop() {
		events += hosts[i%len(hosts)].make().events
		i++
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(events)/float64(b.N), "events/batch")
}

// TestLaterSimulationIsALaterBoot: consumers end the processes of a host when it has booted again, and know that from
// the time of the boot.
func TestLaterSimulationIsALaterBoot(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		first, again := fleetOf(t, 3, 10, seed), fleetOf(t, 3, 10, seed+7)
		again.Start = again.Start.Add(5 * time.Minute)
		for i := range 3 { // the clocks of other hosts are wrong
			a, b := first.host(i).header, again.host(i).header
			if a.ClockOffset >= b.ClockOffset || a.BootID == b.BootID {
				t.Errorf("seed %d, host %d: boots %d and %d", seed, i, a.ClockOffset, b.ClockOffset)
			}
		}
	}
}

package leak

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// BenchmarkApply applies encoded batches of 4,096 events and includes decoding. Four threads fill 64 Ki addresses,
// then free and allocate among them, then free them all, so that every round starts from the same state.
func BenchmarkApply(b *testing.B) {
	for _, bb := range []struct {
		name     string
		contexts uint64
	}{{"unknown context", 0}, {"one context", 1}, {"eight contexts", 8}} {
		b.Run(bb.name, func(b *testing.B) { benchmarkApply(b, bb.contexts) })
	}
}

func benchmarkApply(b *testing.B, contexts uint64) {
	const perBatch, ring, allocs = 4096, 1 << 16, 1 << 18
	h := consumertest.Memory(b, "gpu-01")
	p := h.Process(42, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-1"}
	var messages [][]byte
	address := func(n uint64) uint64 { return 0x7f0000000000 + n*2654435761%ring<<9 }
	now := schema.KTime(1)
	for n := range uint64(allocs + ring) {
		if n >= ring {
			p.Free(uint32(n%4), address(n-ring), now, 300)
		}
		if n < allocs {
			if contexts > 0 {
				p.Context = 0x5500 + n%contexts
			}
			p.Alloc(uint32(n%4), address(n), 512+n%100_000, now+500, 300)
		}
		now += 1000
		if n%(perBatch/2) == perBatch/2-1 {
			messages = append(messages, h.Message())
		}
	}
	tracker, d, batch := New(Config{}), schema.NewDecoder(), &schema.Batch{}
	events, i := 0, 0
	for b.Loop() {
		if err := d.Decode(messages[i%len(messages)], batch); err != nil {
			b.Fatal(err)
		}
		if err := tracker.Apply(batch); err != nil {
			b.Fatal(err)
		}
		events += batch.Events
		i++
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	if c := tracker.Report().Counters; c != (Counters{}) {
		b.Fatalf("unexpected counters: %+v", c)
	}
}

// BenchmarkApplyFleet applies batches of a thousand hosts in turn. Each host has a thousand live allocations, so its
// state is in no CPU cache when its next batch arrives. The baseline does the least that such a fold could do: one Go
// map per host from address to bytes.
func BenchmarkApplyFleet(b *testing.B) {
	for _, events := range []int{320, 3072} {
		b.Run(fmt.Sprint(events, " events"), func(b *testing.B) { applyFleet(b, events/2) })
	}
}

func applyFleet(b *testing.B, pairs int) {
	const hosts, live, rounds = 1000, 1024, 4
	messages := fleetMessages(b, hosts, live, rounds, pairs)
	d, batch := schema.NewDecoder(), &schema.Batch{}
	fold := func(apply func()) (took time.Duration) {
		began := time.Now()
		for n, m := range messages {
			if n == hosts {
				began = time.Now()
			}
			if err := d.Decode(m, batch); err != nil {
				b.Fatal(err)
			}
			apply()
		}
		return time.Since(began)
	}
	var took, floor time.Duration
	for b.Loop() {
		tracker := New(Config{})
		took += fold(func() { apply(b, tracker, batch) })
		if c := tracker.Report().Counters; c != (Counters{}) {
			b.Fatalf("unexpected counters: %+v", c)
		}
		held := map[string]map[uint64]uint64{}
		floor += fold(func() { holdInMaps(held, batch) })
		for host, m := range held {
			if len(m) != live {
				b.Fatalf("%s holds %d allocations, want %d", host, len(m), live)
			}
		}
	}
	events := float64(b.N * rounds * hosts * 2 * pairs)
	b.ReportMetric(float64(took.Nanoseconds())/events, "ns/event")
	b.ReportMetric(float64(floor.Nanoseconds())/events, "maps-ns/event")
	b.ReportMetric(0, "ns/op")
}

// holdInMaps is the baseline. It handles only successful allocations and frees.
func holdInMaps(held map[string]map[uint64]uint64, b *schema.Batch) {
	m := held[b.Host]
	if m == nil {
		m = map[uint64]uint64{}
		held[b.Host] = m
	}
	calls, keys, bytes := b.Call(), b.Ptr(), b.Bytes()
	for i := range b.Events {
		if b.Calls[calls.At(i)].Op == schema.OpAlloc {
			m[keys.At(i)] = bytes.At(i)
		} else {
			delete(m, keys.At(i))
		}
	}
}

// fleetMessages returns one batch per host that fills it, then batches that free and allocate, host by host.
func fleetMessages(b *testing.B, hosts, live, rounds, pairs int) (messages [][]byte) {
	random := rand.New(rand.NewPCG(1, 2))
	all, at := make([]*consumertest.Host, hosts), make([]schema.KTime, hosts)
	procs, held := make([]*consumertest.Process, hosts), make([][]uint64, hosts)
	next := make([]uint64, hosts)
	alloc := func(i int) {
		next[i]++
		address := 0x7f0000000000 + next[i]*2654435761%(1<<22)<<9
		procs[i].Alloc(uint32(next[i]%4), address, 512+address%100_000, at[i], 300)
		held[i] = append(held[i], address)
		at[i] += 1000
	}
	for i := range hosts {
		all[i] = consumertest.Memory(b, fmt.Sprintf("gpu-%04d", i))
		procs[i] = all[i].Process(42, 1, "train")
		procs[i].GPU, procs[i].Context = &schema.GPU{UUID: fmt.Sprint("GPU-", i)}, 0x5500
		for range live {
			alloc(i)
		}
		messages = append(messages, all[i].Message())
	}
	for range rounds {
		for i := range hosts {
			for range pairs {
				k := random.IntN(len(held[i]))
				procs[i].Free(uint32(k%4), held[i][k], at[i], 300)
				held[i][k] = held[i][len(held[i])-1]
				held[i] = held[i][:len(held[i])-1]
				alloc(i)
			}
			messages = append(messages, all[i].Message())
		}
	}
	return messages
}

// BenchmarkContextEnd ends a context that holds a tenth of a million allocations.
func BenchmarkContextEnd(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		b.StopTimer()
		tracker, h := New(Config{}), consumertest.Memory(b, "gpu-01")
		p := h.Process(42, 1, "train")
		for i := range n {
			p.Context = 1 + uint64(i%10)
			p.Alloc(1, 0x7f0000000000+uint64(i)<<9, 512, schema.KTime(i), 1)
			if i%4096 == 4095 {
				apply(b, tracker, h.Batch())
			}
		}
		p.DestroyContext(3, n+1, 1)
		last := h.Batch()
		b.StartTimer()
		apply(b, tracker, last)
	}
}

// million returns a tracker with n live allocations of one process.
func million(tb testing.TB, n int) *Tracker {
	tracker := New(Config{})
	h := consumertest.Memory(tb, "gpu-01")
	p := h.Process(42, 1, "train")
	for i := range n {
		p.Alloc(uint32(i%4), 0x7f0000000000+uint64(i)<<9, uint64(512+i%1_000_000), schema.KTime(i), 1)
		if i%4096 == 4095 || i == n-1 {
			apply(tb, tracker, h.Batch())
		}
	}
	return tracker
}

func BenchmarkLiveBytes(b *testing.B) {
	for _, n := range []int{1 << 20, 1_500_000} {
		b.Run(name(n), func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				tracker := million(b, n)
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/allocation")
				runtime.KeepAlive(tracker)
			}
		})
	}
}

func name(n int) string {
	if n == 1<<20 {
		return "1Mi"
	}
	return "1.5M"
}

func BenchmarkReport1M(b *testing.B) {
	tracker := million(b, 1<<20)
	id := tracker.Report().Processes[0].ID
	for _, read := range []struct {
		name string
		once func()
	}{
		{"Report", func() { tracker.Report() }},
		{"Top20", func() { tracker.Top(20) }},
		{"Top1000", func() { tracker.Top(maxTop) }},
		{"TopRows20", func() { tracker.TopRows(20) }},
		{"LargestOf1000", func() { tracker.LargestOf(id, maxTop) }},
		{"LargestOfNone", func() { tracker.LargestOf(schema.ProcessID{Cluster: id.Cluster, Host: id.Host}, maxTop) }},
		{"Collect", func() {
			to := make(chan prometheus.Metric, 10_000)
			tracker.Collect(to)
		}},
	} {
		b.Run(read.name, func(b *testing.B) {
			var worst time.Duration
			for b.Loop() {
				start := time.Now()
				read.once()
				worst = max(worst, time.Since(start))
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
}

// BenchmarkTick closes a window of a process that has leaked a million allocations in 30 windows.
func BenchmarkTick(b *testing.B) {
	const n, windows = 1 << 20, 31
	tracker, h := New(Config{Window: time.Second}), consumertest.Memory(b, "gpu-01")
	p := h.Process(42, 1, "train")
	for i := range n {
		at := schema.KTime(i) * schema.KTime(windows*time.Second) / n
		p.Alloc(uint32(i%4), 0x7f0000000000+uint64(i)<<9, uint64(512+i%1_000_000), at, 1)
		if i%4096 == 4095 {
			apply(b, tracker, h.Batch())
		}
	}
	through := schema.KTime(windows * time.Second)
	for b.Loop() {
		tracker.Tick(&h.Header, through)
		if v := tracker.Report().Processes[0].Verdicts[0]; !v.State.Grows() {
			b.Fatal(v.Why)
		}
		tracker.hosts[tracker.table.All()[0].State.boot.id].boots["boot-1"].windows.Open--
	}
}

// scattered returns a tracker with n live allocations of one process whose addresses, sizes, times, threads and
// contexts have no regularity that a snapshot could use.
func scattered(tb testing.TB, n int) *Tracker {
	tracker, rng := New(Config{}), rand.New(rand.NewPCG(1, 1))
	h := consumertest.Memory(tb, "gpu-01")
	p := h.Process(42, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-1"}
	now := schema.KTime(1)
	for i := range n {
		now += schema.KTime(rng.Uint64N(200_000))
		p.Context = 0x5500 + rng.Uint64N(8)
		p.Alloc(rng.Uint32N(64), 0x7f0000000000+rng.Uint64N(1<<31)<<9, rng.Uint64N(512<<rng.Uint64N(20)), now,
			rng.Uint64N(5000))
		if i%4096 == 4095 || i == n-1 {
			apply(tb, tracker, h.Batch())
		}
	}
	return tracker
}

// BenchmarkSnapshot saves and restores about 2 Mi live allocations of one host.
func BenchmarkSnapshot(b *testing.B) {
	const n = 2 << 20
	tracker := scattered(b, n)
	b.Run("Snapshot", func(b *testing.B) {
		bytes := 0
		for b.Loop() {
			bytes = 0
			if err := tracker.Snapshot(func(s snapshot.Section) error {
				bytes += len(s.Data)
				return nil
			}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(bytes)/n, "B/allocation")
	})
	saved := consumertest.Sections(b, tracker)
	b.Run("Restore", func(b *testing.B) {
		for b.Loop() {
			consumertest.Restore(b, New(Config{}), saved)
		}
	})
}

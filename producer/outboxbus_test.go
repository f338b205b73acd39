package producer

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// awayBus is a nats-server that comes and goes, always at the same address and with the same store.
type awayBus struct {
	t    *testing.T
	dir  string
	port int
	s    *server.Server
}

func newAwayBus(t *testing.T) *awayBus {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	b := &awayBus{t: t, dir: t.TempDir(), port: free.Addr().(*net.TCPAddr).Port}
	t.Cleanup(b.stop)
	return b
}

func (b *awayBus) start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if b.s = s; !s.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("nats-server does not start")
	}
	if err := bus.EnsureStreams(b.t.Context(), b.connect(), bus.StreamOptions{MaxBytes: 1 << 30}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *awayBus) stop() {
	if b.s != nil {
		b.s.Shutdown()
		b.s.WaitForShutdown()
		b.s = nil
	}
}

// connect works while the bus is away, too.
func (b *awayBus) connect() jetstream.JetStream {
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", b.port), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(20*time.Millisecond, 0), nats.ReconnectBufSize(-1))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// life is one life of a producer from its batches on.
type life struct {
	t      *testing.T
	s      *spool
	header schema.Header
	seq    [schema.NumKinds]uint64
	end    func()
}

// startRun gives what it sends to sent too.
func startRun(t *testing.T, bus *awayBus, dir, boot string, number uint64) *life {
	r := &life{t: t, header: schema.Header{Cluster: "c", Host: "h", BootID: boot, Run: number, ClockOffset: int64(number)}}
	r.s = spoolAt(t, dir, 64<<10, 1<<30, 32<<10, quiet())
	publishing, stopPublishing := context.WithCancel(context.Background())
	storing, stopStoring := context.WithCancel(context.Background())
	var publishers, store sync.WaitGroup
	store.Go(func() { r.s.store(storing) })
	js := bus.connect()
	route := newRouter(js, "c", "h", 0, quiet())
	route.follow(schema.Topology{Generation: 1, Shards: 1}, time.Now())
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		p := &publisher{js: js, spool: r.s, kind: kind, route: route, metrics: newMetrics(), log: quiet()}
		publishers.Go(func() { p.run(publishing) })
	}
	r.end = sync.OnceFunc(func() {
		stopPublishing()
		publishers.Wait()
		stopStoring()
		store.Wait()
	})
	t.Cleanup(r.end)
	return r
}

// send pushes n batches of each of two kinds and notes them down.
func (r *life) send(n int, sent *[schema.NumKinds][][]byte) {
	r.t.Helper()
	for range n {
		for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch} {
			b := schema.NewBuilder(kind)
			b.Call(schema.CallRef{Symbol: "f"})
			b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 7}), TID: 7})
			b.CUDAStream(0)
			b.Shape(schema.LaunchShape{Func: b.Func(schema.Func{Name: "k"})})
			for i := range 100 {
				if kind == schema.KindMemory {
					b.AddMemory(&schema.Memory{Time: schema.KTime(i + 1), Ptr: uint64(i) * 0x9e3779b97f4a7c15, Bytes: uint64(i)})
				} else {
					b.AddLaunch(&schema.Launch{Time: schema.KTime(i + 1)})
				}
			}
			r.seq[kind]++
			h := r.header
			h.Seq = r.seq[kind]
			data := b.Encode(&h)
			sent[kind] = append(sent[kind], bytes.Clone(data))
			r.s.push(kind, data, encoded{seq: h.Seq, events: b.Events(), last: b.Last(), at: time.Now().UnixNano()})
		}
		awaits(r.t, "the disk keeps up", func() bool { return r.s.level().bytes < 48<<10 || r.s.level().unstored == 0 })
	}
	awaits(r.t, "all is stored", func() bool { return r.s.level().unstored == 0 })
}

func awaits(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// checkStored compares the stream with what was sent: per kind all of it, in order, byte for byte, and run after run. What
// came twice comes behind what it is a copy of, in its run.
func checkStored(t *testing.T, bus *awayBus, sent *[schema.NumKinds][][]byte) (twice int) {
	t.Helper()
	jsStream, err := bus.connect().Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	decoder := schema.NewDecoder()
	var at [schema.NumKinds]int
	type runKind struct {
		boot string
		run  uint64
		kind schema.Kind
	}
	last, began, newest := map[runKind]uint64{}, map[uint64]int{}, 0
	for seq := uint64(1); seq <= jsStream.CachedInfo().State.LastSeq; seq++ {
		m, err := jsStream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var b schema.Batch
		if err := decoder.Decode(m.Data, &b); err != nil {
			t.Fatal(err)
		}
		if m.Subject != schema.Subject(0, b.Cluster, b.Host, b.Kind) {
			t.Errorf("%s of %s is on %s", b.Kind, b.Host, m.Subject)
		}
		of := runKind{b.BootID, b.Run, b.Kind}
		if b.Seq <= last[of] { // what consumers drop
			twice++
			continue
		}
		last[of] = b.Seq
		if began[b.Run] == 0 {
			newest++
			began[b.Run] = newest
		}
		if began[b.Run] != newest {
			t.Fatalf("%s of boot %s run %d comes after a later run has begun", b.Kind, b.BootID, b.Run)
		}
		if i := at[b.Kind]; i >= len(sent[b.Kind]) || !bytes.Equal(sent[b.Kind][i], m.Data) {
			t.Fatalf("%s %d is not what was sent: boot %s run %d seq %d", b.Kind, i, b.BootID, b.Run, b.Seq)
		}
		at[b.Kind]++
	}
	for kind, n := range at {
		if n != len(sent[kind]) {
			t.Errorf("%d %s batches came of %d", n, schema.Kind(kind), len(sent[kind]))
		}
	}
	return twice
}

// TestOutboxOverRestartAndReboot: the bus is away while a producer ends, another one crashes and the host reboots; when it
// is back everything comes, run after run.
func TestOutboxOverRestartAndReboot(t *testing.T) {
	bus, dir := newAwayBus(t), t.TempDir()
	var sent [schema.NumKinds][][]byte
	bus.start()
	first := startRun(t, bus, dir, "boot-1", 100)
	first.send(20, &sent)
	awaits(t, "all is acked", func() bool { return first.s.level().batches == 0 })
	bus.stop()
	first.send(60, &sent)
	first.end()
	kept := first.s.level().batches

	second := startRun(t, bus, dir, "boot-1", 200)
	second.send(60, &sent)
	dir = copyDir(t, dir) // as SIGKILL would leave it
	second.end()

	third := startRun(t, bus, dir, "boot-2", 50)
	third.send(60, &sent)
	if n := third.s.level().batches; kept != 120 || n != 360 {
		t.Errorf("%d batches wait after one run and %d after three, want 120 and 360", kept, n)
	}
	bus.start()
	third.send(5, &sent)
	awaits(t, "all is acked", func() bool { return third.s.level().batches == 0 })
	third.end()
	if twice := checkStored(t, bus, &sent); twice > 4 {
		t.Errorf("%d batches came twice", twice)
	}
	if l := third.s.level(); l.droppedN > 0 || l.outbox.damaged > 0 {
		t.Errorf("%+v", l)
	}
}

// TestOutboxRunsInOrder: of a later run nothing is given out, of whatever kind, while something of an earlier one is not acked.
func TestOutboxRunsInOrder(t *testing.T) {
	dir, memory := t.TempDir(), 1<<20
	write := func(counts map[schema.Kind]int) *spool {
		s := spoolAt(t, dir, memory, 1<<30, 1<<10, quiet())
		for kind, n := range counts {
			for id := range n {
				s.push(kind, batchOf(kind, id, 500), encoded{seq: uint64(id + 1), events: 1})
			}
		}
		for s.writeRound() {
		}
		return s
	}
	write(map[schema.Kind]int{schema.KindMemory: 5, schema.KindHost: 1}).finish()
	write(map[schema.Kind]int{schema.KindMemory: 1, schema.KindLaunch: 2}).finish()
	s := write(map[schema.Kind]int{schema.KindHost: 2, schema.KindCopy: 1})
	var order []string
	for s.level().batches > 0 {
		stuck := true
		for kind := schema.NumKinds - 1; kind > schema.KindNone; kind-- { // memory last
			if s.head(kind) == nil {
				continue
			}
			e, err := s.next(t.Context(), kind)
			if err != nil {
				t.Fatal(err)
			}
			order = append(order, fmt.Sprintf("%s%d", kind, e.seq))
			for _, wake := range s.wake {
				if len(wake) > 0 {
					<-wake
				}
			}
			waiting := map[schema.Kind]bool{}
			for kind := range s.wake {
				waiting[schema.Kind(kind)] = s.head(schema.Kind(kind)) == nil
			}
			s.acked(kind)
			stuck = false
			for kind, waited := range waiting {
				if waited && s.head(kind) != nil && len(s.wake[kind]) == 0 {
					t.Errorf("%s is not woken when its turn comes", kind)
				}
			}
		}
		if stuck {
			t.Fatalf("nothing can be sent after %v", order)
		}
	}
	want := "[host1 memory1 memory2 memory3 memory4 memory5 launch1 memory1 launch2 host1 copy1 host2]"
	if got := fmt.Sprint(order); got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
}

// TestOutboxBusIsAwayAtStart, comes, goes and comes: all is published once.
func TestOutboxBusIsAwayAtStart(t *testing.T) {
	bus, dir := newAwayBus(t), t.TempDir()
	var sent [schema.NumKinds][][]byte
	r := startRun(t, bus, dir, "boot-1", 1)
	r.send(30, &sent)
	for range 3 {
		bus.start()
		r.send(30, &sent)
		bus.stop()
	}
	r.send(10, &sent)
	bus.start()
	awaits(t, "all is acked", func() bool { return r.s.level().batches == 0 })
	checkStored(t, bus, &sent)
}

// TestOutboxOfAHostThatHadAnotherName: batches go where they say that they are from.
func TestOutboxOfAHostThatHadAnotherName(t *testing.T) {
	bus, dir := newAwayBus(t), t.TempDir()
	var sent [schema.NumKinds][][]byte
	s := spoolAt(t, dir, 1<<20, 1<<30, 1<<20, quiet())
	s.outbox.self = origin{"c", "old.name"}
	r := &life{t: t, s: s, header: schema.Header{Cluster: "c", Host: "old.name", BootID: "b", Run: 1}}
	ended, end := context.WithCancel(t.Context())
	var store sync.WaitGroup
	store.Go(func() { s.store(ended) })
	r.send(3, &sent)
	end()
	store.Wait()
	now := startRun(t, bus, dir, "b", 2)
	now.send(3, &sent)
	bus.start()
	awaits(t, "all is acked", func() bool { return now.s.level().batches == 0 })
	checkStored(t, bus, &sent)
}

package producer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// logged is a log that is kept.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func outboxOptions(s *spool, dir string) outbox.Options {
	return outbox.Options{
		Dir: dir, MaxBytes: 1 << 30, Lost: s.lost, Changed: s.changed, Urgent: s.urgent, Log: quiet(),
		SegmentBytes: 32 << 10, SyncInterval: 10 * time.Millisecond,
	}
}

func (s *spool) useOutbox(t testing.TB, opts outbox.Options) {
	t.Helper()
	o, err := outbox.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.outbox = o
	t.Cleanup(o.Close) // it would write into a directory that is being removed
}

// spoolAt is a spool with an outbox. The test stores, or a goroutine that it starts.
func spoolAt(t testing.TB, dir string, memory int) *spool {
	t.Helper()
	s := newSpool(memory)
	s.useOutbox(t, outboxOptions(s, dir))
	return s
}

func files(t testing.TB, dir, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// copyDir copies a directory as it is, as SIGKILL would leave it.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		t.Fatal(err)
	}
	return to
}

// pushID pushes a batch with as many events as its seq.
func pushID(s *spool, kind schema.Kind, id int) {
	s.push(outbox.Batch{
		Kind: kind, Data: bytes.Repeat([]byte{byte(id)}, 1000),
		Seq: uint64(id), Events: id, Closed: int64(id), Last: schema.KTime(id),
	})
}

// try returns the batch that next would return at once; nil if there is none.
func try(t testing.TB, s *spool, kind schema.Kind) *encoded {
	t.Helper()
	e, err := s.head(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// takeAll acks what can be published of a kind.
func takeAll(t testing.TB, s *spool, kind schema.Kind) (ids []int) {
	t.Helper()
	for e := try(t, s, kind); e != nil; e = try(t, s, kind) {
		id := int(e.Seq)
		if !bytes.Equal(e.Data, bytes.Repeat([]byte{byte(id)}, 1000)) || e.Events != id || e.Closed != int64(id) ||
			e.Last != schema.KTime(id) {
			t.Fatalf("batch %d is not what was pushed: %d events, times %d and %d", id, e.Events, e.Closed, e.Last)
		}
		ids = append(ids, id)
		s.acked(kind)
	}
	return ids
}

func same(t testing.TB, what string, got, want []int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestBatchIsStoredBeforeItIsPublished: with an outbox that can be written, no batch goes out that is not on the disk.
func TestBatchIsStoredBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	s := spoolAt(t, t.TempDir(), 1<<20)
	pushID(s, schema.KindMemory, 1)
	if e := try(t, s, schema.KindMemory); e != nil {
		t.Error("a batch is published that is not on the disk")
	}
	for s.storeRound() {
	}
	if l := s.level(); l.unstored != 0 || l.bytes != 0 || l.outbox.Batches != 1 || l.batches != 1 {
		t.Errorf("stored: %+v", l)
	}
	same(t, "stored", takeAll(t, s, schema.KindMemory), []int{1})
	if l := s.level(); l.batches != 0 {
		t.Errorf("left: %+v", l)
	}
}

// breakDisk makes the state unwritable, until mend.
func breakDisk(t *testing.T, s *spool, dir string) (mend func()) {
	t.Helper()
	obstacle := filepath.Join(dir, "state.new")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	s.lost.Add(1) // it has to be stored
	awaits(t, "the disk fails", func() bool { return !s.outbox.Stats().Writable })
	return func() {
		if err := os.Remove(obstacle); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedDisk: memory goes on behind what is stored, publishers are woken, and nothing comes twice when the disk is
// back, whether the batch in flight then is acked before, while or after it is stored.
func TestFailedDisk(t *testing.T) {
	t.Parallel()
	for _, acked := range []string{"before", "while", "after"} {
		t.Run(acked, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := spoolAt(t, dir, 1<<20)
			pushID(s, schema.KindMemory, 1)
			s.storeRound()
			pushID(s, schema.KindMemory, 2)
			<-s.wake[schema.KindMemory]
			mend := breakDisk(t, s, dir)
			awaits(t, "the publisher is woken when the disk fails", func() bool {
				return len(s.wake[schema.KindMemory]) > 0
			})
			if s.storeRound() {
				t.Error("a failed disk is written")
			}
			same(t, "stored, then in memory", takeAll(t, s, schema.KindMemory), []int{1, 2})
			for id := 3; id <= 5; id++ {
				pushID(s, schema.KindMemory, id)
			}
			if e := try(t, s, schema.KindMemory); e == nil || e.Seq != 3 {
				t.Fatal("a failed disk holds batches up")
			}
			mend()
			awaits(t, "the disk works again", func() bool { return s.outbox.Stats().Writable })
			switch acked {
			case "before":
				s.acked(schema.KindMemory)
			case "while":
				e, b, inFlight := s.claim(schema.KindMemory)
				s.acked(schema.KindMemory)
				s.release(schema.KindMemory, e, b, s.outbox.Append(b, inFlight))
			}
			for s.storeRound() {
			}
			if acked == "after" {
				s.acked(schema.KindMemory)
			}
			same(t, "then", takeAll(t, s, schema.KindMemory), []int{4, 5})
			if l := s.level(); l.batches != 0 || l.bytes != 0 || l.droppedEvents != 1 {
				t.Errorf("left: %+v", l)
			}
		})
	}
}

// TestSilentDisk: a batch that is being written goes out from memory while the disk is silent, and does not come twice
// when it answers.
func TestSilentDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSpool(1 << 20)
	opts := outboxOptions(s, dir)
	opts.Timeout = 100 * time.Millisecond
	s.useOutbox(t, opts)
	s.closeTimeout = 100 * time.Millisecond
	fifo := filepath.Join(dir, "state.new")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s.lost.Add(1) // it has to be stored
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.store(ctx)
	}()
	awaits(t, "the disk is asked", func() bool { return !s.outbox.Stats().Writable })
	pushID(s, schema.KindMemory, 1)
	pushID(s, schema.KindMemory, 2)
	for _, want := range []uint64{1, 2} {
		if e, err := s.next(t.Context(), schema.KindMemory); err != nil || e.Seq != want {
			t.Errorf("got %+v, %v", e, err)
		}
		s.acked(schema.KindMemory)
	}
	end()
	<-ended // whoever ends does not wait for the disk
	f, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	awaits(t, "the directory is left", func() bool {
		dir, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	})
}

// TestFullOutboxDropsTheBatch: a batch that has no room in the outbox is lost, but not while it is in flight.
func TestFullOutboxDropsTheBatch(t *testing.T) {
	t.Parallel()
	s := newSpool(1 << 20)
	opts := outboxOptions(s, t.TempDir())
	opts.MaxBytes = 1
	s.useOutbox(t, opts)
	pushID(s, schema.KindLaunch, 3)
	e, b, _ := s.claim(schema.KindLaunch)
	s.inFlight[schema.KindLaunch] = e
	if s.release(schema.KindLaunch, e, b, s.outbox.Append(b, true)) || s.level().unstored != 1 {
		t.Errorf("in flight: %+v", s.level())
	}
	s.inFlight[schema.KindLaunch] = nil
	for s.storeRound() {
	}
	if l := s.level(); l.outbox.Dropped != 1 || l.droppedEvents != 3 || l.unstored != 0 || l.bytes != 0 {
		t.Errorf("%+v", l)
	}
}

// TestUrgentKind: on a full disk room is made for the most precious kind in memory, once half of that is used.
func TestUrgentKind(t *testing.T) {
	t.Parallel()
	s := newSpool(4000)
	pushID(s, schema.KindCopy, 1)
	pushID(s, schema.KindLaunch, 2)
	if kind := s.urgent(); kind != schema.KindNone {
		t.Errorf("with half of the memory: %v", kind)
	}
	pushID(s, schema.KindLaunch, 3)
	if kind := s.urgent(); kind != schema.KindCopy {
		t.Errorf("with more: %v", kind)
	}
}

// TestEndWithoutDisk: what cannot be stored at the end counts as lost, for the next run to report.
func TestEndWithoutDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := spoolAt(t, dir, 1<<20)
	mend := breakDisk(t, s, dir)
	pushID(s, schema.KindMemory, 5)
	s.storeRest()
	if l := s.level(); l.unstored != 1 || l.droppedEvents != 1+5 {
		t.Errorf("%+v", l)
	}
	mend()
	if again := spoolAt(t, dir, 1<<20); again.level().batches != 0 {
		t.Errorf("%+v", again.level())
	}
}

// outboxCollector shows a spool's outbox alone.
type outboxCollector struct{ s *spool }

func (outboxCollector) Describe(chan<- *prometheus.Desc) {}

func (c outboxCollector) Collect(out chan<- prometheus.Metric) {
	level := c.s.level()
	collectOutbox(out, &level)
}

// TestOutboxMetrics are as docs/outbox.md lists them.
func TestOutboxMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := spoolAt(t, dir, 1<<20)
	s.push(outbox.Batch{
		Kind: schema.KindMemory, Data: make([]byte, 5000), Seq: 1, Events: 1,
		Closed: time.Now().Add(-time.Hour).UnixNano(),
	})
	s.storeRound()
	try(t, s, schema.KindMemory) // it is in flight
	breakDisk(t, s, dir)
	registry := prometheus.NewRegistry()
	registry.MustRegister(outboxCollector{s})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		if !bytes.Contains(page, []byte("`"+f.GetName()+"`")) {
			t.Errorf("the page does not explain %s", f.GetName())
		}
	}
	const prefix = "gputap_producer_outbox_"
	if age := got[prefix+"oldest_seconds"]; age < 3600 || age > 3700 {
		t.Errorf("the oldest is %v seconds old", age)
	}
	if got[prefix+"write_errors_total"] == 0 {
		t.Error("failed writes are not counted")
	}
	delete(got, prefix+"oldest_seconds")
	delete(got, prefix+"write_errors_total")
	want := map[string]float64{
		prefix + "bytes": 8192, prefix + "batches": 1, prefix + "damaged_total": 0, prefix + "dropped_batches_total": 0,
		prefix + "writable": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestOpenBatchesAreShort: a crash takes the batch that is open. With an outbox it grows for a second and no longer.
func TestOpenBatchesAreShort(t *testing.T) {
	t.Parallel()
	for _, disk := range []bool{false, true} {
		s := newSpool(1 << 20)
		if disk {
			s = spoolAt(t, t.TempDir(), 1<<20)
		}
		limits := batchLimits{events: 10, bytes: 1 << 16, maxBytes: 1 << 18, age: 50e6}
		b := newBatcher(limits, schema.Header{}, s, func() (none [schema.NumLosses]uint64) { return none })
		pushID(s, schema.KindLaunch, 1) // not acked
		b.open[schema.KindLaunch].AddLaunch(&schema.Launch{Time: 1})
		b.added(schema.KindLaunch, 1)
		for _, tt := range []struct {
			now    schema.KTime
			closed bool
		}{{900e6, false}, {1100e6, disk}} {
			if b.closeDue(tt.now); (len(s.queues[schema.KindLaunch]) == 2) != tt.closed {
				t.Errorf("outbox %v: after %d ms there are %d batches",
					disk, tt.now/1e6, len(s.queues[schema.KindLaunch]))
			}
		}
	}
}

// unreliableNATS is a nats-server that is started and stopped, always at the same address and with the same store.
type unreliableNATS struct {
	t    *testing.T
	dir  string
	port int
	s    *server.Server
}

func newUnreliableNATS(t *testing.T) *unreliableNATS {
	b := &unreliableNATS{t: t, dir: t.TempDir(), port: bustest.Port(t)}
	t.Cleanup(b.stop)
	return b
}

func (b *unreliableNATS) start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if b.s = s; !s.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("nats-server does not start")
	}
	options := eventbus.StreamOptions{MaxBytes: 1 << 30}
	if err := eventbus.EnsureStreams(b.t.Context(), b.connect(), options); err != nil {
		b.t.Fatal(err)
	}
}

func (b *unreliableNATS) stop() {
	if b.s != nil {
		b.s.Shutdown()
		b.s.WaitForShutdown()
		b.s = nil
	}
}

// connect works while the server is stopped, too.
func (b *unreliableNATS) connect() jetstream.JetStream {
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", b.port),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(20*time.Millisecond, 0),
		nats.ReconnectBufSize(-1))
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

// startRun starts a run of a producer.
func startRun(t *testing.T, bus *unreliableNATS, dir, boot string, number uint64) *life {
	r := &life{t: t, header: schema.Header{
		Cluster: "c", Host: "h", BootID: boot, Run: number, ClockOffset: int64(number),
	}}
	r.s = spoolAt(t, dir, 64<<10)
	publishing, stopPublishing := context.WithCancel(context.Background())
	storing, stopStoring := context.WithCancel(context.Background())
	var publishers, store sync.WaitGroup
	store.Go(func() { r.s.store(storing) })
	js := bus.connect()
	route := newRouter(js, "c", "h", 0, quiet())
	route.follow(schema.Topology{Generation: 1, Shards: 1}, time.Now())
	for kind := schema.KindMemory; kind <= schema.KindHost; kind++ {
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
					b.AddMemory(&schema.Memory{
						Time: schema.KTime(i + 1), Ptr: uint64(i) * 0x9e3779b97f4a7c15, Bytes: uint64(i),
					})
				} else {
					b.AddLaunch(&schema.Launch{Time: schema.KTime(i + 1)})
				}
			}
			r.seq[kind]++
			h := r.header
			h.Seq = r.seq[kind]
			data := b.Encode(&h)
			sent[kind] = append(sent[kind], bytes.Clone(data))
			r.s.push(outbox.Batch{
				Kind: kind, Data: data, Seq: h.Seq, Events: b.Events(), Last: b.Last(), Closed: time.Now().UnixNano(),
			})
		}
		awaits(r.t, "the disk keeps up", func() bool { return r.s.level().bytes < 48<<10 || r.s.level().unstored == 0 })
	}
	awaits(r.t, "all is stored", func() bool { return r.s.level().unstored == 0 })
}

func awaits(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// checkStored compares the stream with the sent batches: per kind all of them, in order, byte for byte, and run after
// run. A copy of a batch comes behind the batch, in its run.
func checkStored(t *testing.T, bus *unreliableNATS, sent *[schema.NumKinds][][]byte) (twice int) {
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

// TestOutboxOverRestartAndReboot: NATS is unreachable while a producer ends, another one crashes and the host reboots.
// Then everything comes, run after run.
func TestOutboxOverRestartAndReboot(t *testing.T) {
	bus, dir := newUnreliableNATS(t), t.TempDir()
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
	if l := third.s.level(); l.droppedEvents > 0 || l.outbox.Corrupt > 0 {
		t.Errorf("%+v", l)
	}
}

// TestOutboxWhileNATSComesAndGoes: everything is published once.
func TestOutboxWhileNATSComesAndGoes(t *testing.T) {
	bus, dir := newUnreliableNATS(t), t.TempDir()
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

// TestRenamedHost: batches of an earlier run go to the subject of the host that it was.
func TestRenamedHost(t *testing.T) {
	bus, dir := newUnreliableNATS(t), t.TempDir()
	var sent [schema.NumKinds][][]byte
	s := newSpool(1 << 20)
	opts := outboxOptions(s, dir)
	s.useOutbox(t, opts)
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

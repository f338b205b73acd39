package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// outboxKinds are the kinds that the tests write.
var outboxKinds = []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindHost}

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

var runs atomic.Uint64

// spoolAt is a spool with an outbox whose goroutine is the test. Each is a run of its own.
func spoolAt(t testing.TB, dir string, memory int, limit, segment int64, log *slog.Logger) *spool {
	t.Helper()
	o, lost, err := openOutbox(outboxOptions{dir: dir, limit: limit, segment: segment, self: origin{"c", "h"}, run: fmt.Sprint(runs.Add(1))}, log)
	if err != nil {
		t.Fatal(err)
	}
	s := newSpool(memory)
	s.outbox, s.dropped = o, lost
	t.Cleanup(func() { s.crash() })
	return s
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// crash ends a spool as SIGKILL would: nothing is written any more.
func (s *spool) crash() {
	for _, open := range s.outbox.writer.open {
		if open != nil {
			open.file.Close()
		}
	}
	for _, open := range s.outbox.writer.closing {
		open.file.Close()
	}
	s.leave()
}

// batchOf is what the tests take for a batch: its number, again and again, so that no two are alike.
func batchOf(kind schema.Kind, id, bytes int) []byte {
	word := fmt.Sprintf("%s %d,", kind, id)
	return []byte(strings.Repeat(word, bytes/len(word)+1))
}

func idOf(t testing.TB, kind schema.Kind, data []byte) (id int) {
	t.Helper()
	if _, err := fmt.Sscanf(string(data), kind.String()+" %d,", &id); err != nil || !bytes.Equal(data, batchOf(kind, id, len(data)-len(fmt.Sprintf("%s %d,", kind, id)))) {
		t.Fatalf("%s: %.40q is no batch", kind, data)
	}
	return id
}

func pushID(s *spool, kind schema.Kind, id, bytes int) {
	s.push(kind, batchOf(kind, id, bytes), encoded{seq: uint64(id), events: id, at: int64(id)})
}

// try gives the next batch if there is one.
func try(s *spool, kind schema.Kind) *encoded {
	ended, end := context.WithCancel(context.Background())
	end()
	e, _ := s.next(ended, kind)
	return e
}

// takeAll acks what there is of a kind and gives the numbers.
func takeAll(t testing.TB, s *spool, kind schema.Kind) (ids []int) {
	t.Helper()
	for e := try(s, kind); e != nil; e = try(s, kind) {
		id := idOf(t, kind, e.data)
		if e.seq != uint64(id) || e.events != id || e.at != int64(id) {
			t.Fatalf("batch %d has seq %d, %d events, time %d", id, e.seq, e.events, e.at)
		}
		ids = append(ids, id)
		s.acked(kind)
	}
	return ids
}

func from(first, last int) (ids []int) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func same(t testing.TB, what string, got, want []int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func files(t testing.TB, dir string, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// copyDir copies a directory as it is, also while it is written.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range files(t, dir, "*") {
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // acked meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestOutboxGivesNothingBeforeItIsStored(t *testing.T) {
	s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 1<<20, quiet())
	pushID(s, schema.KindMemory, 1, 100)
	if e := try(s, schema.KindMemory); e != nil {
		t.Error("a batch is given that is not on the disk")
	}
	s.writeRound()
	same(t, "stored", takeAll(t, s, schema.KindMemory), from(1, 1))
}

// TestOutboxOverRestarts: what is not acked is there after a restart, before what is new, in order, and what is acked is
// not; of what is acked no file is left.
func TestOutboxOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outbox")
	for range 2 { // the second time with numbers that were used before
		s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
		for id := 1; id <= 100; id++ {
			pushID(s, schema.KindMemory, id, 1000)
		}
		for s.writeRound() {
		}
		for range 42 {
			try(s, schema.KindMemory)
			s.acked(schema.KindMemory)
		}
		s.finish()
		if mode := stat(t, dir).Mode(); mode != fs.ModeDir|0o700 {
			t.Errorf("the directory has mode %v", mode)
		}
		for _, path := range files(t, dir, "*") {
			if mode := stat(t, path).Mode(); mode != 0o600 {
				t.Errorf("%s has mode %v", path, mode)
			}
		}
		s = spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
		if l := s.level(); l.batches != 58 || l.outbox.batches != 58 {
			t.Errorf("%d batches wait, want 58", l.batches)
		}
		pushID(s, schema.KindMemory, 101, 1000)
		s.writeRound()
		same(t, "after the restart", takeAll(t, s, schema.KindMemory), from(43, 101))
		s.finish()
		if left := files(t, dir, "*.*"); len(left) > 0 {
			t.Errorf("files are left: %v", left)
		}
	}
}

func stat(t testing.TB, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestOutboxMemory: however much is on the disk, memory holds no more than it may, and nothing is lost.
func TestOutboxMemory(t *testing.T) {
	s := spoolAt(t, t.TempDir(), 50_000, 1<<30, 100_000, quiet())
	for id := 1; id <= 1000; id++ {
		pushID(s, schema.KindMemory, id, 1000)
		if id == 300 { // one in flight does not hinder
			for s.writeRound() {
			}
			try(s, schema.KindMemory)
		}
		for s.writeRound() {
		}
		if l := s.level(); l.bytes > 50_000 {
			t.Fatalf("%d bytes in memory", l.bytes)
		}
	}
	same(t, "all", takeAll(t, s, schema.KindMemory), from(1, 1000))
	if l := s.level(); l.droppedN != 0 || l.bytes != 0 || l.batches != 0 {
		t.Errorf("left: %+v", l)
	}
}

// TestOutboxBound: beyond its limit the oldest launches go, then the oldest memory events, never what is in flight, and
// each is counted once. A launch does not push memory events out.
func TestOutboxBound(t *testing.T) {
	const limit, segment = 200_000, 16_000
	s := spoolAt(t, t.TempDir(), 30_000, limit, segment, quiet())
	fill := func(kind schema.Kind, first, last int) {
		for id := first; id <= last; id++ {
			pushID(s, kind, id, 1000)
			for s.writeRound() {
			}
			if l := s.level(); l.outbox.bytes > limit {
				t.Fatalf("%d bytes on the disk", l.outbox.bytes)
			}
		}
	}
	sum := func(ids []int) (events uint64) {
		for _, id := range ids {
			events += uint64(id)
		}
		return events
	}
	fill(schema.KindLaunch, 1, 300)
	launches := s.level()
	if launches.droppedN == 0 || launches.droppedN != launches.outbox.gone {
		t.Fatalf("nothing was given up: %+v", launches)
	}
	fill(schema.KindMemory, 1, 100)
	if try(s, schema.KindLaunch); s.inFlight[schema.KindLaunch] == nil {
		t.Fatal("no launch is left: nothing is shown")
	}
	flying := idOf(t, schema.KindLaunch, s.inFlight[schema.KindLaunch].data)
	fill(schema.KindMemory, 101, 400)
	full, precious := s.level(), s.outbox.batches[schema.KindMemory]
	fill(schema.KindLaunch, 301, 340)
	if s.outbox.batches[schema.KindMemory] != precious || s.level().droppedN == full.droppedN {
		t.Errorf("for 40 more launches %d batches were given up, %d memory batches are left of %d",
			s.level().droppedN-full.droppedN, s.outbox.batches[schema.KindMemory], precious)
	}
	next := 401
	for s.outbox.bytes+1100+2*shareBytes <= limit { // no room is left, and launches have nothing but what is in flight
		fill(schema.KindMemory, next, next)
		next++
	}
	for s.dropLaunches() {
	}
	for s.outbox.bytes+1100+2*shareBytes <= limit {
		fill(schema.KindMemory, next, next)
		next++
	}
	full, precious = s.level(), s.outbox.batches[schema.KindMemory]
	fill(schema.KindLaunch, 341, 341)
	if n := s.level().droppedN - full.droppedN; n != 1 || s.outbox.batches[schema.KindMemory] != precious {
		t.Errorf("for a launch %d batches were given up, %d memory batches are left of %d", n, s.outbox.batches[schema.KindMemory], precious)
	}
	memory := takeAll(t, s, schema.KindMemory)
	same(t, "memory", memory, from(memory[0], next-1))
	left := takeAll(t, s, schema.KindLaunch)
	if left[0] != flying {
		t.Errorf("of the launches %v are left, %d was in flight", left, flying)
	}
	l := s.level()
	if all := sum(from(1, 341)) + sum(from(1, next-1)); l.droppedEvents+sum(memory)+sum(left) != all {
		t.Errorf("%d events dropped, %d and %d sent, of %d", l.droppedEvents, sum(memory), sum(left), all)
	}
	if l.batches != 0 || l.bytes != 0 {
		t.Errorf("left: %+v", l)
	}
	if n := uint64(len(memory) + len(left)); l.droppedN+n != uint64(340+next) || l.outbox.gone != l.droppedN {
		t.Errorf("%d batches dropped and %d sent of %d", l.droppedN, n, 340+next)
	}
}

// TestOutboxLimitIsLowered: what an earlier run left beyond the limit of this one is given up, oldest first.
func TestOutboxLimitIsLowered(t *testing.T) {
	const limit = 40_000
	dir := written(t, 100, true)
	s := spoolAt(t, dir, 1<<20, limit, 10_000, quiet())
	s.settle()
	onDisk := int64(0)
	for _, path := range files(t, dir, "*.memory") {
		onDisk += stat(t, path).Size()
	}
	left := takeAll(t, s, schema.KindMemory)
	if len(left) == 0 || onDisk > limit {
		t.Fatalf("%v are left in %d bytes", left, onDisk)
	}
	same(t, "left", left, from(left[0], 100))
	if l := s.level(); l.droppedN != uint64(100-len(left)) || l.outbox.gone != l.droppedN {
		t.Errorf("%d batches are left: %+v", len(left), l)
	}
}

// TestOutboxCountOutlivesItsBatches: what a run lost is told by its batches, or by those of a later run that gave them up.
func TestOutboxCountOutlivesItsBatches(t *testing.T) {
	for _, sizes := range [][]int{{90, 90, 300}, {90, 90, 60}, {300, 20, 75}, {300, 300, 1}} {
		for _, end := range []func(*spool){(*spool).finish, (*spool).crash} {
			countOutlives(t, sizes, end)
		}
	}
}

// countOutlives has runs write so many batches, of 10 events each, and the last one send what is left.
func countOutlives(t *testing.T, sizes []int, end func(*spool)) {
	t.Helper()
	const events = 10
	dir, made, came, told := t.TempDir(), uint64(0), uint64(0), map[uint64]uint64{}
	var s *spool
	push := func(run, seq, bytes int) {
		b := schema.NewBuilder(schema.KindHost)
		b.Linux = strings.Repeat("x", bytes)
		h := schema.Header{Run: uint64(run), Seq: uint64(seq)}
		h.Lost[schema.LossSpool] = s.level().droppedEvents
		s.push(schema.KindMemory, b.Encode(&h), encoded{seq: h.Seq, events: events})
		for s.writeRound() {
		}
		made += events
	}
	for run, n := range sizes {
		if s != nil {
			end(s)
		}
		s = spoolAt(t, dir, 50_000, 100_000, 10_000, quiet())
		for seq := range n {
			push(run, seq+1, 1000)
		}
		push(run, n+1, 0)
		push(run, n+2, 0) // no room had to be made for it: it tells all
	}
	for e := try(s, schema.KindMemory); e != nil; e = try(s, schema.KindMemory) {
		var b schema.Batch
		if err := schema.NewDecoder().Decode(e.data, &b); err != nil {
			t.Fatal(err)
		}
		told[b.Run] = b.Lost[schema.LossSpool]
		came += events
		s.acked(schema.KindMemory)
	}
	sum, last := came, uint64(len(sizes)-1)
	told[last] = s.level().droppedEvents
	for _, lost := range told {
		sum += lost
	}
	if sum != made || came == made {
		t.Errorf("%v: %d events came and %v are told as lost, of %d", sizes, came, told, made)
	}
}

// dropLaunches gives launches up that are not in flight.
func (s *spool) dropLaunches() bool {
	if len(s.outbox.segments[schema.KindLaunch]) < 2 {
		return false
	}
	return s.dropSegment(schema.KindLaunch)
}

// TestOutboxIsTaken: a second producer is refused, and one after the first is not.
func TestOutboxIsTaken(t *testing.T) {
	dir := t.TempDir()
	s := spoolAt(t, dir, 1000, 1<<30, 1000, quiet())
	open := func() error {
		o, _, err := openOutbox(outboxOptions{dir: dir, limit: 1 << 30, segment: 1000}, quiet())
		if err == nil {
			o.writer.dir.close()
		}
		return err
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "in use by another producer") || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second gets %v", err)
	}
	s.finish()
	if err := open(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("a directory of all gives %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir = file
	if err := open(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file gives %v", err)
	}
}

// TestOutboxCopiedWhileWritten: copies of the directory, taken while it is written and acked, hold all that was stored
// before and not acked after, in order.
func TestOutboxCopiedWhileWritten(t *testing.T) {
	dir := t.TempDir()
	s := spoolAt(t, dir, 200_000, 1<<30, 20_000, quiet())
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { s.store(ctx) })
	var acked, allowed [schema.NumKinds]atomic.Int64 // few are acked a round, so that a copy has something to hold
	for _, kind := range outboxKinds {
		group.Go(func() {
			for ctx.Err() == nil {
				for allowed[kind].Add(-1) < 0 && ctx.Err() == nil {
					allowed[kind].Add(1)
				}
				if e, err := s.next(ctx, kind); err == nil {
					acked[kind].Store(int64(idOf(t, kind, e.data))) // from now on a copy may be without it
					s.acked(kind)
				}
			}
		})
	}
	group.Go(func() {
		for id := 1; ctx.Err() == nil; id++ {
			for _, kind := range outboxKinds {
				pushID(s, kind, id, id%3000)
			}
			for s.level().bytes > 100_000 && ctx.Err() == nil { // else memory drops what the disk had no time for
			}
		}
	})
	held := 0
	for range 30 {
		before := s.level()
		for _, kind := range outboxKinds {
			allowed[kind].Add(10)
		}
		for s.level() == before { // something is done between copies
		}
		var last [schema.NumKinds]int
		s.mu.Lock()
		for _, kind := range outboxKinds {
			if n := s.stored[kind]; n > 0 {
				last[kind] = int(s.queues[kind][n-1].seq)
			}
		}
		s.mu.Unlock()
		copied := copyDir(t, dir)
		again := spoolAt(t, copied, 1<<20, 1<<30, 20_000, quiet())
		for _, kind := range outboxKinds {
			done := int(acked[kind].Load())
			ids := takeAll(t, again, kind)
			for i := 1; i < len(ids); i++ {
				// A segment whose batches were all acked may have gone before it was copied.
				if ids[i] <= ids[i-1] || ids[i] > ids[i-1]+1 && ids[i] > done+1 {
					t.Errorf("%s: %d after %d, acked are %d", kind, ids[i], ids[i-1], done)
				}
			}
			if last[kind] <= done {
				continue
			}
			held++
			if len(ids) == 0 || ids[0] > done+1 || ids[len(ids)-1] < last[kind] {
				t.Errorf("%s: %d to %d were to be there, and are %v", kind, done+1, last[kind], ids)
			}
		}
		again.crash()
	}
	stop()
	group.Wait()
	if held == 0 {
		t.Error("no copy had to hold anything: nothing is shown")
	}
	if l := s.level(); l.droppedN > 0 || l.outbox.damaged > 0 || l.outbox.writeErr > 0 {
		t.Errorf("%+v", l)
	}
}

// TestOutboxUnwritable: a directory that this user may not write is an error at the start.
func TestOutboxUnwritable(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // its thread, which is another user from here on, ends with it
			_ = unix.Setfsuid(65534)
		}
		_, err := (&outbox{dir: dir, log: quiet()}).enter() // in this thread
		got <- err
	}()
	if err := <-got; !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
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
	page, err := os.ReadFile("../docs/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 1<<20, quiet())
	s.push(schema.KindMemory, make([]byte, 5000), encoded{seq: 1, events: 1, at: time.Now().Add(-time.Hour).UnixNano()})
	s.writeRound()
	s.outbox.damaged, s.outbox.gone = 3, 4
	s.outbox.failed(io.ErrShortWrite)
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
	delete(got, prefix+"oldest_seconds")
	want := map[string]float64{
		prefix + "bytes": 8192, prefix + "batches": 1, prefix + "damaged_total": 3, prefix + "dropped_batches_total": 4,
		prefix + "write_errors_total": 1, prefix + "writable": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestOpenBatchesAreShort: while a batch is open a crash takes it. With an outbox it grows for a second and no longer.
func TestOpenBatchesAreShort(t *testing.T) {
	for _, disk := range []bool{false, true} {
		s := newSpool(1 << 20)
		if disk {
			s = spoolAt(t, t.TempDir(), 1<<20, 1<<30, 1<<20, quiet())
		}
		limits := batchLimits{events: 10, bytes: 1 << 16, maxBytes: 1 << 18, age: 50e6}
		b := newBatcher(limits, schema.Header{}, s, func() (none [schema.NumLosses]uint64) { return none })
		pushID(s, schema.KindLaunch, 1, 100) // it waits
		b.open[schema.KindLaunch].AddLaunch(&schema.Launch{Time: 1})
		b.added(schema.KindLaunch, 1)
		for _, tt := range []struct {
			now    schema.KTime
			closed bool
		}{{900e6, false}, {1100e6, disk}} {
			if b.closeDue(tt.now); (len(s.queues[schema.KindLaunch]) == 2) != tt.closed {
				t.Errorf("outbox %v: after %d ms there are %d batches", disk, tt.now/1e6, len(s.queues[schema.KindLaunch]))
			}
		}
	}
}

package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

const (
	memory = schema.KindMemory
	launch = schema.KindLaunch
	host   = schema.KindHost
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

func options(dir string) Options {
	return Options{
		Dir: dir, MaxBytes: 1 << 30,
		Lost: new(atomic.Uint64), Changed: func() {}, Urgent: func() schema.Kind { return schema.KindNone },
		Log: slog.New(slog.DiscardHandler), SegmentBytes: 10_000, SyncInterval: time.Hour,
	}
}

func open(t testing.TB, opts Options) *Outbox {
	t.Helper()
	awaitForks()
	o, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.crash)
	return o
}

// awaitForks waits for child processes that another test forked and that have not executed their program yet. They hold
// the lock of each directory that this test has closed meanwhile.
func awaitForks() {
	syscall.ForkLock.Lock()
	syscall.ForkLock.Unlock() //nolint:staticcheck // nothing happens in between
}

// crash ends a run as SIGKILL would: nothing is written any more.
func (o *Outbox) crash() {
	o.stop()
	o.syncing.Wait()
	o.writing <- struct{}{}
	defer func() { <-o.writing }()
	if o.dir != nil {
		o.closeFiles()
	}
}

// syncNow syncs at once, as the outbox does every SyncInterval.
func (o *Outbox) syncNow() {
	if err := o.writing.Take(context.Background(), o.opts.Timeout, o.sync); err != nil {
		o.fail(err)
	}
}

// batchOf is a batch for a test: its number, again and again, so that no two are alike.
func batchOf(kind schema.Kind, id, bytes int) []byte {
	word := fmt.Sprintf("%s %d,", kind, id)
	return []byte(strings.Repeat(word, bytes/len(word)+1))
}

func idOf(t testing.TB, kind schema.Kind, data []byte) (id int) {
	t.Helper()
	_, err := fmt.Sscanf(string(data), kind.String()+" %d,", &id)
	if err != nil || !bytes.Equal(data, batchOf(kind, id, len(data)-len(fmt.Sprintf("%s %d,", kind, id)))) {
		t.Fatalf("%s: %.40q is no batch", kind, data)
	}
	return id
}

// put appends a batch that has as many events as its number.
func put(o *Outbox, kind schema.Kind, id, bytes int) error {
	return o.Append(&Batch{
		Kind: kind, Data: batchOf(kind, id, bytes), Seq: uint64(id), Events: id,
		Closed: int64(id), Last: schema.KTime(id),
	}, false)
}

func fill(t testing.TB, o *Outbox, kind schema.Kind, first, last, bytes int) {
	t.Helper()
	for id := first; id <= last; id++ {
		if err := put(o, kind, id, bytes); err != nil {
			t.Fatal(err)
		}
	}
}

func next(t testing.TB, o *Outbox, kind schema.Kind) *Batch {
	t.Helper()
	b, err := o.Next(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// takeAll acks all batches of a kind and returns their numbers.
func takeAll(t testing.TB, o *Outbox, kind schema.Kind) (ids []int) {
	t.Helper()
	for b := next(t, o, kind); b != nil; b = next(t, o, kind) {
		id := idOf(t, kind, b.Data)
		if b.Seq != uint64(id) || b.Events != id || b.Closed != int64(id) || b.Last != schema.KTime(id) {
			t.Fatalf("batch %d has seq %d, %d events, times %d and %d", id, b.Seq, b.Events, b.Closed, b.Last)
		}
		ids = append(ids, id)
		o.Ack(b)
	}
	return ids
}

func from(first, last int) (ids []int) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func sum(ids []int) (events uint64) {
	for _, id := range ids {
		events += uint64(id)
	}
	return events
}

func same(t testing.TB, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func files(t testing.TB, dir, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func stat(t testing.TB, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
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

// TestRestartResumes: batches that are not acked come after a restart, in order and before newer ones. Acked ones are
// gone, with their files.
func TestRestartResumes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outbox")
	for range 2 { // the second time with numbers that were used before
		o := open(t, options(dir))
		fill(t, o, memory, 1, 100, 1000)
		for range 42 {
			o.Ack(next(t, o, memory))
		}
		o.Close()
		if mode := stat(t, dir).Mode(); mode != fs.ModeDir|0o700 {
			t.Errorf("the directory has mode %v", mode)
		}
		for _, path := range files(t, dir, "*") {
			if mode := stat(t, path).Mode(); mode != 0o600 {
				t.Errorf("%s has mode %v", path, mode)
			}
		}
		o = open(t, options(dir))
		if n := o.Stats().Batches; n != 58 || o.Stats().Waiting[memory] != 58 {
			t.Errorf("%d batches wait, want 58", n)
		}
		b := next(t, o, memory)
		if !b.Earlier {
			t.Errorf("%+v is not of an earlier run", b)
		}
		fill(t, o, memory, 101, 101, 1000)
		same(t, "after the restart", takeAll(t, o, memory), from(43, 101))
		o.Close()
		if left := files(t, dir, "*.*"); len(left) > 0 {
			t.Errorf("files are left: %v", left)
		}
	}
}

// TestRunsInOrder: no batch of a later run comes, of whatever kind, while one of an earlier run is not acked.
func TestRunsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	changed := 0
	write := func(counts map[schema.Kind]int) *Outbox {
		opts := options(dir)
		opts.SegmentBytes, opts.Changed = 1<<10, func() { changed++ }
		o := open(t, opts)
		for kind, n := range counts {
			fill(t, o, kind, 1, n, 500)
		}
		return o
	}
	write(map[schema.Kind]int{memory: 5, host: 1}).Close()
	write(map[schema.Kind]int{memory: 1, launch: 2}).Close()
	o := write(map[schema.Kind]int{host: 2, schema.KindCopy: 1})
	o.fail(unix.EIO)
	var order []string
	for o.Stats().Batches > 0 {
		stuck := true
		for kind := schema.NumKinds - 1; kind > schema.KindNone; kind-- { // memory last
			if o.Stats().Bypass[launch] {
				t.Errorf("a new batch may pass %d older ones", o.Stats().Batches)
			}
			b := next(t, o, kind)
			if b == nil {
				continue
			}
			order = append(order, fmt.Sprintf("%s%d", kind, b.Seq))
			before := changed
			if o.Ack(b); b.Earlier && changed == before {
				t.Errorf("nobody is woken after %v", order)
			}
			stuck = false
			if len(order) == 9 {
				break // the rest is of this run
			}
		}
		if stuck {
			t.Fatalf("nothing can be sent after %v", order)
		}
		if len(order) == 9 {
			break
		}
	}
	want := "[host1 memory1 memory2 memory3 memory4 memory5 launch1 memory1 launch2]"
	if got := fmt.Sprint(order); got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
	same(t, "hosts of the present run", takeAll(t, o, host), from(1, 2))
	if !o.Stats().Bypass[launch] || o.Stats().Bypass[schema.KindCopy] {
		t.Error("with one copy batch left, launches may pass and copies may not")
	}
}

// TestLimit: beyond its limit the oldest launches go, then the oldest memory events, and each is counted once. One in
// flight may still be acked. A launch does not push memory events out.
func TestLimit(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	opts := options(t.TempDir())
	opts.MaxBytes, opts.SegmentBytes = limit, 16_000
	o := open(t, opts)
	last := map[schema.Kind]int{}
	add := func(kind schema.Kind, n int) {
		t.Helper()
		for range n {
			last[kind]++
			if err := put(o, kind, last[kind], 1000); err != nil {
				t.Fatal(err)
			}
			disk := int64(0)
			for _, path := range files(t, opts.Dir, "*.*") {
				disk += stat(t, path).Size()
			}
			if s := o.Stats(); s.Bytes > limit || disk > limit {
				t.Fatalf("%d bytes, and %d on the disk", s.Bytes, disk)
			}
		}
	}
	add(launch, 300)
	if s := o.Stats(); s.Dropped == 0 || s.Dropped+uint64(s.Batches) != 300 {
		t.Fatalf("%+v", s)
	}
	add(memory, 100)
	flying := next(t, o, launch)
	add(memory, 300)
	precious, dropped := o.Stats().Waiting[memory], o.Stats().Dropped
	add(launch, 40)
	if o.Stats().Waiting[memory] != precious || o.Stats().Dropped == dropped {
		t.Errorf("launches pushed memory events out: %d of %d are left", o.Stats().Waiting[memory], precious)
	}
	for range 1000 {
		if o.Stats().Waiting[launch] <= 16 {
			break
		}
		add(memory, 1)
	}
	refused := false
	for !refused && last[launch] < 1000 {
		add(memory, 1)
		before := o.Stats()
		add(launch, 1)
		after := o.Stats()
		refused = after.Waiting[launch] == before.Waiting[launch]
		precious = before.Waiting[memory]
	}
	if !refused || o.Stats().Waiting[memory] != precious {
		t.Errorf("refused a launch: %v; %d memory batches are left of %d", refused, o.Stats().Waiting[memory], precious)
	}
	o.Ack(flying)
	left := append([]int{int(flying.Seq)}, takeAll(t, o, launch)...)
	kept := takeAll(t, o, memory)
	same(t, "memory", kept, from(kept[0], last[memory]))
	all := sum(from(1, last[launch])) + sum(from(1, last[memory]))
	if lost := o.opts.Lost.Load(); lost+sum(left)+sum(kept) != all || !slices.IsSorted(left) {
		t.Errorf("%d events lost, %d and %d sent, of %d", lost, sum(left), sum(kept), all)
	}
	if s := o.Stats(); s.Batches != 0 || int(s.Dropped)+len(left)+len(kept) != last[launch]+last[memory] {
		t.Errorf("%+v: %d and %d sent of %v", s, len(left), len(kept), last)
	}
}

// TestAckOfOldBatch: a second ack of a batch changes nothing.
func TestAckOfOldBatch(t *testing.T) {
	t.Parallel()
	o := open(t, options(t.TempDir()))
	fill(t, o, memory, 1, 5, 100)
	first := next(t, o, memory)
	o.Ack(first)
	o.Ack(next(t, o, memory))
	o.Ack(first)
	if n := o.Stats().Waiting[memory]; n != 3 {
		t.Errorf("%d batches wait, want 3", n)
	}
	same(t, "left", takeAll(t, o, memory), from(3, 5))
}

// TestLowerLimit: batches of an earlier run beyond the limit of this one are dropped, oldest first.
func TestLowerLimit(t *testing.T) {
	t.Parallel()
	opts := options(written(t, 100, true))
	opts.MaxBytes = 40_000
	o := open(t, opts)
	onDisk := int64(0)
	for _, path := range files(t, opts.Dir, "*.memory") {
		onDisk += stat(t, path).Size()
	}
	left := takeAll(t, o, memory)
	if len(left) == 0 || onDisk > opts.MaxBytes {
		t.Fatalf("%v are left in %d bytes", left, onDisk)
	}
	same(t, "left", left, from(left[0], 100))
	if n := o.Stats().Dropped; n != uint64(100-len(left)) || o.opts.Lost.Load() != sum(from(1, left[0]-1)) {
		t.Errorf("%d batches are left, %d dropped, %d events lost", len(left), n, o.opts.Lost.Load())
	}
}

// TestOneProducerPerDirectory: a second producer is refused, one after the first is not.
func TestOneProducerPerDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, options(dir))
	again := func(dir string) error {
		o, err := Open(options(dir))
		if err == nil {
			o.Close()
		}
		return err
	}
	refuses := func(dir, why string) {
		t.Helper()
		if err := again(dir); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v", why, err)
		}
	}
	refuses(dir, "in use by another producer")
	o.Close()
	o.Close() // once more does nothing
	if err := again(dir); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refuses(dir, "chmod 700")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(file, "not a directory")
}

// TestUnwritableDirectory: a directory that this user may not write is an error at the start.
func TestUnwritableDirectory(t *testing.T) {
	t.Parallel()
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
		got <- (&Outbox{opts: options(dir)}).enter() // in this thread
	}()
	if err := <-got; !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

// TestCopyWhileWritten: copies of the directory, taken while it is written and acked, hold all that was stored before
// and not acked after, in order.
func TestCopyWhileWritten(t *testing.T) {
	t.Parallel()
	opts := options(t.TempDir())
	opts.SegmentBytes = 20_000
	o := open(t, opts)
	kinds := []schema.Kind{memory, launch, host}
	var stored, acked [schema.NumKinds]atomic.Int64
	copied := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for id := 1; ; id++ {
			for _, kind := range kinds {
				if err := put(o, kind, id, id%3000); err != nil {
					t.Error(err)
					return
				}
				stored[kind].Store(int64(id))
			}
			if id%50 == 0 {
				o.syncNow()
			}
			for o.Stats().Waiting[memory] > 200 {
				select {
				case <-copied:
					return
				default:
					runtime.Gosched()
				}
			}
			select {
			case <-copied:
				return
			default:
			}
		}
	})
	for _, kind := range kinds {
		group.Go(func() {
			for {
				b, err := o.Next(t.Context(), kind)
				if err != nil {
					t.Error(err)
					return
				}
				if b != nil && o.Stats().Waiting[kind] > 100 { // so that a copy has something to hold
					acked[kind].Store(int64(idOf(t, kind, b.Data))) // from now on a copy may be without it
					o.Ack(b)
				}
				select {
				case <-copied:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	held := 0
	for range 10 {
		for before := stored[host].Load(); stored[host].Load() == before && !t.Failed(); {
			runtime.Gosched()
		}
		var last [schema.NumKinds]int
		for _, kind := range kinds {
			last[kind] = int(stored[kind].Load())
		}
		again := open(t, options(copyDir(t, opts.Dir)))
		for _, kind := range kinds {
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
	close(copied)
	group.Wait()
	if held == 0 {
		t.Error("no copy had to hold anything: nothing is shown")
	}
	if s := o.Stats(); o.opts.Lost.Load() > 0 || s.Corrupt > 0 || s.WriteErrors > 0 {
		t.Errorf("%+v", s)
	}
}

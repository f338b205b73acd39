package outbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/outbox/segment"
)

// openImpatient opens an outbox that waits little for the disk from then on.
func openImpatient(t *testing.T, opts Options) *Outbox {
	t.Helper()
	o := open(t, opts)
	o.opts.Timeout, o.opts.ReadTimeout = 20*time.Millisecond, 50*time.Millisecond
	return o
}

// silent makes a file one that does not answer: a FIFO, whose opening waits until answer.
func silent(t *testing.T, path string, flag int) (answer func()) {
	t.Helper()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		f, err := os.OpenFile(path, flag, 0)
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { f.Close() })
	}
}

func awaits(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// TestSilentDiskAtRead: batches that cannot be read are lost after ReadTimeout, and do not delay the end.
func TestSilentDiskAtRead(t *testing.T) {
	t.Parallel()
	dir := written(t, 3, true)
	o := openImpatient(t, options(dir))
	answer := silent(t, files(t, dir, "*.memory")[0], os.O_WRONLY)
	defer answer()
	ended, end := context.WithCancel(t.Context())
	end()
	if b, err := o.Next(ended, memory); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end it gives %v, %v", b, err)
	}
	fill(t, o, memory, 4, 4, 100)
	if b := next(t, o, memory); b != nil {
		t.Errorf("a silent disk gives %v", b.Seq)
	}
	if o.opts.Lost.Load() != 1+2+3+4 || o.Stats().Corrupt != 2 || o.Stats().Waiting[memory] != 0 {
		t.Errorf("%d events are lost: %+v", o.opts.Lost.Load(), o.Stats())
	}
}

// TestSilentDiskIsAskedOnce: a disk that does not answer gets one request at a time.
func TestSilentDiskIsAskedOnce(t *testing.T) {
	t.Parallel()
	dir := written(t, 20, true)
	o := openImpatient(t, options(dir))
	list := files(t, dir, "*.memory")
	answer := silent(t, list[0], os.O_WRONLY)
	silent(t, list[1], os.O_WRONLY)
	if b := next(t, o, memory); b != nil && b.Seq != 19 {
		t.Errorf("got %d", b.Seq)
	}
	if f, err := os.OpenFile(list[1], os.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.ENXIO) {
		t.Errorf("a second file is read: %v", err)
		f.Close()
	}
	if lost := o.opts.Lost.Load(); lost < sum(from(1, 18)) {
		t.Errorf("%d events are lost", lost)
	}
	answer()
	fill(t, o, memory, 21, 21, 100)
	awaits(t, "it answers", func() bool {
		b := next(t, o, memory)
		if b == nil {
			fill(t, o, memory, 21, 21, 100)
		}
		return b != nil
	})
}

// TestReadIsRetried: a file that cannot be opened for another reason is not given up at once.
func TestReadIsRetried(t *testing.T) {
	t.Parallel()
	dir := written(t, 3, true)
	opts := options(dir)
	opts.ReadTimeout = 10 * time.Second
	o := open(t, opts)
	path := files(t, dir, "*.memory")[0]
	move(t, path, path+".away")
	if err := os.Symlink(path, path); err != nil { // ELOOP
		t.Fatal(err)
	}
	ended, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if _, err := o.Next(ended, memory); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	move(t, path+".away", path)
	if same(t, "then", takeAll(t, o, memory), from(1, 3)); o.opts.Lost.Load() > 0 {
		t.Error("batches were given up")
	}
}

// TestSilentDiskAtWrite: while the disk is silent new batches may pass, the log says it once, and the disk is used
// again when it answers.
func TestSilentDiskAtWrite(t *testing.T) {
	t.Parallel()
	log := &logged{}
	opts := options(t.TempDir())
	opts.Log = log.logger()
	o := open(t, opts)
	o.opts.Timeout = 20 * time.Millisecond
	answer := silent(t, filepath.Join(opts.Dir, "state.new"), os.O_RDONLY)
	fill(t, o, memory, 1, 1, 100)
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		o.syncNow()
	}()
	if o.Stats().Bypass[launch] {
		t.Error("the disk counts as failed at once")
	}
	awaits(t, "new batches may pass", func() bool { return o.Stats().Bypass[launch] })
	awaits(t, "the log says so", func() bool { return log.count("does not answer") == 1 })
	s := o.Stats()
	if s.Bypass[memory] || s.Writable {
		t.Errorf("%+v, the log has %s", s, &log.text)
	}
	same(t, "meanwhile", takeAll(t, o, memory), from(1, 1))
	answer()
	<-synced
	o.writing <- struct{}{} // the FIFO has been written and renamed: the next state replaces it
	<-o.writing
	o.opts.Timeout = time.Minute
	o.syncNow()
	fill(t, o, memory, 2, 2, 100)
	if s := o.Stats(); !s.Writable || log.count("writable again") != 1 {
		t.Errorf("%+v, the log has %s", s, &log.text)
	}
	same(t, "then", takeAll(t, o, memory), from(2, 2))
}

// TestSilentDiskAtStart: Open does not wait for it, and Sync enters the directory when it answers.
func TestSilentDiskAtStart(t *testing.T) {
	t.Parallel()
	dir := written(t, 3, true)
	fifo := filepath.Join(dir, segment.Name{Kind: launch, Number: 9}.String())
	answer := silent(t, fifo, os.O_WRONLY)
	log := &logged{}
	opts := options(dir)
	opts.Log, opts.Timeout = log.logger(), 20*time.Millisecond
	o := open(t, opts)
	if !o.Stats().Bypass[memory] || o.Stats().Batches != 0 || log.count("does not answer") != 1 {
		t.Errorf("%+v, the log has %s", o.Stats(), &log.text)
	}
	answer()
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	o.opts.Timeout = time.Minute
	o.syncNow()
	same(t, "then", takeAll(t, o, memory), from(1, 3))
	if !o.Stats().Writable {
		t.Errorf("%+v", o.Stats())
	}
	o.Close()
}

package producer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// impatient has a test wait less for the disk.
func impatient(t *testing.T) {
	was, long := hang, patience
	hang, patience = 20*time.Millisecond, 50*time.Millisecond
	t.Cleanup(func() { hang, patience = was, long })
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

// TestOutboxHangsAtRead: what a disk does not give is given up, and does not hold up who ends.
func TestOutboxHangsAtRead(t *testing.T) {
	dir := written(t, 3, true)
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
	answer := silent(t, files(t, dir, "*.memory")[0], os.O_WRONLY)
	impatient(t)
	defer answer()
	ended, end := context.WithCancel(t.Context())
	end()
	if e, err := s.next(ended, schema.KindMemory); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end it gives %v, %v", e, err)
	}
	pushID(s, schema.KindMemory, 4, 100)
	s.writeRound()
	if e, err := s.next(t.Context(), schema.KindMemory); err != nil || e.seq != 4 {
		t.Errorf("got %+v, %v", e, err)
	}
	if l := s.level(); l.droppedEvents != 1+2+3 || l.outbox.damaged != 1 {
		t.Errorf("%+v", l)
	}
}

// TestOutboxHangsAtOneRead: a disk that does not answer is not asked for more, and is again when it has.
func TestOutboxHangsAtOneRead(t *testing.T) {
	dir := written(t, 20, true)
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
	ask := func(i int, wait time.Duration) (recordHead, error) {
		seg := s.outbox.segments[schema.KindMemory][i]
		h, _, err := s.ask(t.Context(), schema.KindMemory, seg.begin, seg.end.off, wait)
		return h, err
	}
	list := files(t, dir, "*.memory")
	answer := silent(t, list[0], os.O_WRONLY)
	silent(t, list[1], os.O_WRONLY)
	for i := range 2 {
		if _, err := ask(i, 20*time.Millisecond); !errors.Is(err, errHangs) {
			t.Errorf("file %d: got %v", i, err)
		}
	}
	if f, err := os.OpenFile(list[1], os.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.ENXIO) {
		t.Errorf("a second file is asked for: %v", err)
		f.Close()
	}
	answer()
	if h, err := ask(2, time.Minute); err != nil || h.seq != 19 {
		t.Errorf("then it gives %d, %v", h.seq, err)
	}
}

// TestOutboxHangsAtTheEnd: who ends does not wait for a disk that does not answer.
func TestOutboxHangsAtTheEnd(t *testing.T) {
	s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 10_000, quiet())
	answer := silent(t, filepath.Join(s.outbox.dir, cursorName+".new"), os.O_RDONLY)
	impatient(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.store(ctx)
	pushID(s, schema.KindMemory, 1, 100)
	if l := s.level(); l.unstored != 1 {
		t.Errorf("%+v", l)
	}
	answer()
	awaits(t, "the directory is left", func() bool {
		f, err := os.Open(s.outbox.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && !s.hangs(-1)
	})
}

// TestOutboxHangsAtTheStart: memory alone goes on until the directory can be read.
func TestOutboxHangsAtTheStart(t *testing.T) {
	dir := written(t, 3, true)
	answer := silent(t, filepath.Join(dir, segmentName(schema.KindLaunch, 9)), os.O_WRONLY)
	impatient(t)
	log := &logged{}
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, log.logger())
	pushID(s, schema.KindMemory, 10, 100)
	if e := try(s, schema.KindMemory); e == nil || e.seq != 10 || log.count("not answered") != 1 {
		t.Errorf("got %v, it says %s", e, &log.text)
	}
	s.acked(schema.KindMemory)
	answer()
	s.settle()
	same(t, "then", takeAll(t, s, schema.KindMemory), from(1, 3))
	if l := s.level(); l.outbox.failing || l.batches != 0 {
		t.Errorf("%+v", l)
	}
	s.finish()
}

// TestOutboxAnswersSlowlyAtTheStart: however long a disk takes that goes on answering, it is waited for; each file is an answer.
func TestOutboxAnswersSlowlyAtTheStart(t *testing.T) {
	dir := written(t, 50, true)
	o := &outbox{dir: dir, log: quiet(), answers: make(chan struct{}, 1000)}
	f, err := o.enter()
	if err != nil {
		t.Fatal(err)
	}
	f.dir.close()
	if n := len(files(t, dir, "*.memory")); n < 2 || len(o.answers) < n {
		t.Errorf("%d answers for %d files", len(o.answers), n)
	}
	synctest.Test(t, func(t *testing.T) {
		o, late := &outbox{answers: make(chan struct{}, 1)}, make(chan entered, 1)
		go func() {
			for range 100 {
				time.Sleep(hang - 1)
				o.answered()
			}
			late <- entered{found: found{next: 7}}
		}()
		if f, err := o.await(late); err != nil || f.next != 7 || o.late != nil {
			t.Errorf("got %v, %v", f.next, err)
		}
		if _, err := o.await(late); !errors.Is(err, errHangs) || o.late == nil {
			t.Errorf("a disk that does not answer gives %v", err)
		}
	})
}

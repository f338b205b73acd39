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

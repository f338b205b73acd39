package outbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// smallDisk is a file system of so many bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatalf("no small disk can be mounted: %v", err)
		}
		t.Skipf("no small disk can be mounted, which takes root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// remount changes the flags of a small disk. A program that another test starts has the files of this process until its
// exec ends, also those open for writing: until then the kernel does not make a disk read-only.
func remount(t *testing.T, disk string, flags uintptr) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT|flags, "")
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			t.Fatalf("the disk cannot be mounted anew: %v", err)
		}
	}
}

// fillDisk appends batches of a kind until the disk fails, and returns how many were stored.
func fillDisk(t *testing.T, o *Outbox, kind schema.Kind, bytes int) (stored int) {
	t.Helper()
	for put(o, kind, stored+1, bytes) == nil {
		if stored++; stored > 10_000 {
			t.Fatal("the disk is never full: nothing is shown")
		}
	}
	if o.Stats().Writable {
		t.Fatal("a full disk counts as writable")
	}
	return stored
}

// TestDiskFull: stored batches come in order and the log names the remedy once. With room again the disk is used, also
// after a crash.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	log := &logged{}
	opts := options(smallDisk(t, "6m"))
	opts.SegmentBytes, opts.Log = 256<<10, log.logger()
	o := open(t, opts)
	stored := fillDisk(t, o, memory, 10_000)
	for range 3 {
		if o.syncNow(); o.Stats().Writable || put(o, memory, stored+1, 10_000) == nil {
			t.Error("a full disk is written")
		}
	}
	if s := o.Stats(); s.Batches != stored || s.WriteErrors < 3 || s.Dropped > 0 {
		t.Errorf("%+v, want %d batches", s, stored)
	}
	if log.count("not writable") != 1 || log.count("make room on its disk") != 1 {
		t.Errorf("the log has %s", &log.text)
	}
	var ids []int
	for range stored/2 + 10 { // makes room
		b := next(t, o, memory)
		ids = append(ids, idOf(t, memory, b.Data))
		o.Ack(b)
	}
	o.syncNow()
	fill(t, o, memory, stored+1, stored+10, 10_000)
	if !o.Stats().Writable || log.count("writable again") != 1 || log.count("not writable") != 1 {
		t.Errorf("with room again: %+v, the log has %s", o.Stats(), &log.text)
	}
	o.crash()
	again := takeAll(t, open(t, options(opts.Dir)), memory)
	if again[0] > len(ids)+1 {
		t.Fatalf("after the crash it begins with %d", again[0])
	}
	same(t, "all", append(ids, again[len(ids)+1-again[0]:]...), from(1, stored+10))
}

// TestFullDiskDropsLessPrecious: on a full disk launches go when memory events wait, and not without need.
func TestFullDiskDropsLessPrecious(t *testing.T) {
	t.Parallel()
	opts := options(smallDisk(t, "4m"))
	opts.SegmentBytes = 256 << 10
	o := open(t, opts)
	launches := fillDisk(t, o, launch, 2000)
	for _, urgent := range []schema.Kind{schema.KindNone, launch} {
		o.opts.Urgent = func() schema.Kind { return urgent }
		if o.syncNow(); o.Stats().Dropped > 0 {
			t.Errorf("for kind %v, %d batches are dropped", urgent, o.Stats().Dropped)
		}
	}
	o.opts.Urgent = func() schema.Kind { return memory }
	for id := 1; id <= 500; id++ {
		if put(o, memory, id, 2000) != nil {
			o.syncNow()
			fill(t, o, memory, id, id, 2000)
		}
	}
	same(t, "memory", takeAll(t, o, memory), from(1, 500))
	left := takeAll(t, o, launch)
	if len(left) == 0 || left[0] == 1 {
		t.Fatalf("launches %v are left", left)
	}
	same(t, "launches", left, from(left[0], launches))
	if lost := o.opts.Lost.Load(); o.Stats().Dropped != uint64(left[0]-1) || lost != sum(from(1, left[0]-1)) {
		t.Errorf("launches from %d on are left, %d events are lost: %+v", left[0], lost, o.Stats())
	}
}

// TestReadOnlyDisk: stored batches are sent, and the disk is used again when it can be written.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "8m")
	remount(t, disk, unix.MS_RDONLY)
	log := &logged{}
	opts := options(filepath.Join(disk, "outbox"))
	opts.Log = log.logger()
	o := open(t, opts) // not even the directory can be made
	if put(o, memory, 1, 1000) == nil || !o.Stats().Bypass[memory] {
		t.Error("a read-only disk is written")
	}
	if o.syncNow(); log.count("not writable") != 1 || log.count("mount its disk writable") != 1 {
		t.Errorf("the log has %s", &log.text)
	}
	remount(t, disk, 0)
	o.syncNow()
	fill(t, o, memory, 2, 20, 1000)
	o.Close()
	remount(t, disk, unix.MS_RDONLY)
	o = open(t, opts)
	if put(o, memory, 21, 1000) == nil || o.Stats().Bypass[memory] || o.Stats().Bypass[launch] {
		t.Error("a new batch is stored, or may pass those of earlier runs")
	}
	same(t, "read only", takeAll(t, o, memory), from(2, 20))
	if !o.Stats().Bypass[memory] {
		t.Error("a new batch may not pass although none is left")
	}
	o.syncNow()
	remount(t, disk, 0)
	o.syncNow()
	if left := files(t, opts.Dir, "*.memory"); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	if o.Close(); opts.Lost.Load() != 0 {
		t.Errorf("%d events are lost", opts.Lost.Load())
	}
}

// TestDiskComesLater: the disk is mounted when the producer runs already, and holds batches of an earlier run. The ack
// of a batch that was published from memory is not taken for one of theirs.
func TestDiskComesLater(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "1m")
	remount(t, disk, unix.MS_RDONLY)
	opts := options(filepath.Join(disk, "outbox"))
	changed := false
	opts.Changed = func() { changed = true }
	o := open(t, opts)
	if !o.Stats().Bypass[memory] {
		t.Fatal("a disk that is not there holds batches up")
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "mode=700,size=8m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	earlier := open(t, options(opts.Dir))
	fill(t, earlier, memory, 1, 5, 1000)
	earlier.Close()
	changed = false
	if o.syncNow(); !changed || !o.Stats().Writable {
		t.Error("nobody is woken when the disk comes")
	}
	inFlight := &Batch{Kind: memory, Data: batchOf(memory, 100, 1000), Seq: 100, Events: 100, Closed: 100, Last: 100}
	if err := o.Append(inFlight, true); err != nil {
		t.Fatal(err)
	}
	fill(t, o, memory, 101, 103, 1000)
	o.Ack(inFlight)
	same(t, "then", takeAll(t, o, memory), append(from(1, 5), from(100, 103)...))
}

// TestBatchInFlightIsStored: a batch published from memory while the disk failed may be acked after it is stored, and
// does not come once more.
func TestBatchInFlightIsStored(t *testing.T) {
	t.Parallel()
	opts := options(t.TempDir())
	opts.MaxBytes, opts.SegmentBytes = 60_000, 2_000
	o := open(t, opts)
	b := &Batch{Kind: memory, Data: batchOf(memory, 1, 1000), Seq: 1, Events: 1}
	if err := o.Append(b, true); err != nil {
		t.Fatal(err)
	}
	fill(t, o, memory, 2, 100, 1000)
	if o.Stats().Dropped == 0 {
		t.Fatal("nothing was dropped: nothing is shown")
	}
	lost := o.opts.Lost.Load()
	o.Ack(b)
	left := takeAll(t, o, memory)
	if same(t, "left", left, from(left[0], 100)); lost != sum(from(2, left[0]-1)) {
		t.Errorf("%d events are lost, and %d is the first", lost, left[0])
	}
}

// TestRemovedDirectoryFallsBackToMemory: the batches in it count as lost when they are due, and the producer goes on
// with memory alone.
func TestRemovedDirectoryFallsBackToMemory(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"replaced": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logged{}
			opts := options(filepath.Join(t.TempDir(), "outbox"))
			opts.Log, opts.SegmentBytes = log.logger(), 2_000
			o := open(t, opts)
			fill(t, o, memory, 1, 10, 1000)
			b := next(t, o, memory)
			if err := remove(opts.Dir); err != nil {
				t.Fatal(err)
			}
			o.syncNow()
			if put(o, memory, 11, 1000) == nil || o.Stats().Writable || log.count("outbox not writable") != 1 {
				t.Errorf("a removed directory is written: %+v, the log has %s", o.Stats(), &log.text)
			}
			o.Ack(b)
			if b := next(t, o, memory); b != nil {
				t.Errorf("a removed directory gives %d", b.Seq)
			}
			s, lost := o.Stats(), opts.Lost.Load()
			if lost != sum(from(2, 10)) || s.Batches != 0 || s.Bytes != 0 || !o.Stats().Bypass[memory] {
				t.Errorf("%d events are lost: %+v", lost, s)
			}
			o.Close()
			fresh := open(t, options(opts.Dir))
			fill(t, fresh, memory, 11, 12, 1000)
			same(t, "left", takeAll(t, fresh, memory), from(11, 12))
		})
	}
}

// TestPowerCut: on a real file system, batches and losses that were synced survive, also when the state is replaced.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 1<<30, 10_000)
	b.finish()
	disk, cutPower := fileSystem(t)
	b.opts.Dir = filepath.Join(disk, "outbox")
	b.start()
	b.fill(memory, 5, 100)
	b.lose(500)
	b.sync()
	b.take(memory, 3)
	b.sync() // the state changes
	for _, names := range []bool{true, false} {
		b.o.crash()
		cutPower(names)
		b.start()
		if b.run == 3 && (b.o.Stats().Waiting[memory] < 2 || b.o.unreported != 500) {
			t.Errorf("%d batches and %d lost events survived", b.o.Stats().Waiting[memory], b.o.unreported)
		}
		b.fill(memory, 1, 100)
		b.take(memory, 10)
		b.sync()
	}
	b.balance()
}

// fileSystem can lose power: then unsynced bytes of files are gone, and unsynced names unless names is set.
func fileSystem(t *testing.T) (dir string, cutPower func(names bool)) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	dir = t.TempDir()
	run := func(name string, args ...string) error {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return err
	}
	mount := func() error { return run("mount", "-o", "loop,noauto_da_alloc", image, dir) }
	err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20))
	err = errors.Join(err, run("mkfs.ext4", "-q", image), mount())
	if err != nil {
		t.Skipf("no file system can be made: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func(names bool) {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
		log := 2                    // EXT4_GOING_FLAGS_NOLOGFLUSH
		if names {
			log = 1 // EXT4_GOING_FLAGS_LOGFLUSH
		}
		err = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, log)
		f.Close()
		if err := errors.Join(err, run("umount", dir), mount()); err != nil {
			t.Fatal(err)
		}
	}
}

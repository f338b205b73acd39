package producer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// TestOutboxDiskFull: memory alone goes on, all of it comes in order, it is said once with the remedy, and when there is
// room the disk is used again.
func TestOutboxDiskFull(t *testing.T) {
	dir := smallDisk(t, "6m")
	log := &logged{}
	s := spoolAt(t, dir, 3<<20, 1<<30, 256<<10, log.logger())
	last := 0
	more := func(n int) {
		for range n {
			last++
			pushID(s, schema.KindMemory, last, 10_000)
			for s.writeRound() {
			}
		}
	}
	for !s.level().outbox.failing {
		if more(1); last > 10_000 {
			t.Fatal("the disk is never full: nothing is shown")
		}
	}
	onDisk := s.level().outbox.batches
	more(100)
	s.settle()
	l := s.level()
	if l.outbox.batches != onDisk || l.unstored != last-onDisk || l.droppedN > 0 || !l.outbox.failing || l.outbox.writeErr == 0 {
		t.Errorf("%+v, want %d batches on the disk and the others in memory", l, onDisk)
	}
	if log.count("cannot be written") != 1 || log.count("make room on its disk") != 1 {
		t.Errorf("it says %s", &log.text)
	}
	var ids []int
	for range onDisk/2 + 10 { // makes room
		e := try(s, schema.KindMemory)
		ids = append(ids, idOf(t, schema.KindMemory, e.data))
		s.acked(schema.KindMemory)
	}
	s.settle()
	for s.writeRound() {
	}
	s.settle()
	if l := s.level(); l.unstored != 0 || l.outbox.failing {
		t.Errorf("with room again: %+v", l)
	}
	if log.count("written again") != 1 || log.count("cannot be written") != 1 {
		t.Errorf("it says %s", &log.text)
	}
	more(10)
	s.crash()
	s = spoolAt(t, dir, 3<<20, 1<<30, 256<<10, log.logger())
	again := takeAll(t, s, schema.KindMemory)
	if again[0] > len(ids)+1 {
		t.Errorf("after the crash it begins with %d", again[0])
	}
	same(t, "all", append(ids, again[len(ids)+1-again[0]:]...), from(1, last))
}

// TestOutboxFailureWakes: wherever the disk is found bad, publishers that wait for it go on with memory.
func TestOutboxFailureWakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func(s *spool)
	}{
		{"the cursor", func(s *spool) {
			if err := os.Mkdir(filepath.Join(s.outbox.dir, cursorName+".new"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.settle()
		}},
		{"an ending", func(s *spool) {
			s.outbox.writer.open[schema.KindMemory].file.Close()
			s.seal(schema.KindMemory, true)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 10_000, quiet())
			pushID(s, schema.KindMemory, 1, 1000)
			s.writeRound()
			same(t, "stored", takeAll(t, s, schema.KindMemory), from(1, 1))
			pushID(s, schema.KindMemory, 2, 1000)
			for _, wake := range s.wake {
				if len(wake) > 0 {
					<-wake
				}
			}
			tt.fail(s)
			if !s.outbox.failing || s.head(schema.KindMemory) == nil || len(s.wake[schema.KindMemory]) == 0 {
				t.Errorf("failing %v, a batch to send %v, woken %v", s.outbox.failing, s.head(schema.KindMemory) != nil, len(s.wake[schema.KindMemory]) > 0)
			}
		})
	}
}

// TestOutboxDiskFullOfLaunches: on a full disk launches go before memory events do, and not while memory has room.
func TestOutboxDiskFullOfLaunches(t *testing.T) {
	s := spoolAt(t, smallDisk(t, "4m"), 200_000, 1<<30, 256<<10, quiet())
	launches := 0
	for !s.level().outbox.failing {
		if launches++; launches > 10_000 {
			t.Fatal("the disk is never full: nothing is shown")
		}
		pushID(s, schema.KindLaunch, launches, 2000)
		for s.writeRound() {
		}
	}
	const memory = 500
	for id := 1; id <= memory; id++ {
		pushID(s, schema.KindMemory, id, 2000)
		if id%20 != 0 {
			continue
		}
		s.settle()
		if id == 40 && s.level().droppedN > 0 {
			t.Errorf("%d batches are given up, with 80 kB in memory", s.level().droppedN)
		}
		for s.writeRound() {
		}
	}
	same(t, "memory", takeAll(t, s, schema.KindMemory), from(1, memory))
	left := takeAll(t, s, schema.KindLaunch)
	if len(left) == 0 {
		t.Fatal("all launches are given up")
	}
	same(t, "launches", left, from(left[0], launches))
	if l := s.level(); left[0] == 1 || l.droppedN != uint64(left[0]-1) || l.batches != 0 {
		t.Errorf("launches from %d on are left: %+v", left[0], l)
	}
}

// TestOutboxInFlightWhenTheDiskIsBack: what memory alone gave out while the disk was bad may be acked before, while or
// after it is stored, and comes once.
func TestOutboxInFlightWhenTheDiskIsBack(t *testing.T) {
	for _, tt := range []string{"before", "while", "after"} {
		t.Run(tt, func(t *testing.T) {
			s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 10_000, quiet())
			s.outbox.failed(unix.EIO)
			for id := 1; id <= 3; id++ {
				pushID(s, schema.KindMemory, id, 1000)
			}
			if e := try(s, schema.KindMemory); e == nil || e.seq != 1 {
				t.Fatal("a bad disk holds batches up")
			}
			if s.settle(); s.outbox.failing {
				t.Fatal("the disk is good and not used")
			}
			switch tt {
			case "before":
				s.acked(schema.KindMemory)
			case "while":
				e := s.claim(schema.KindMemory)
				s.acked(schema.KindMemory)
				if next := try(s, schema.KindMemory); next != nil {
					t.Errorf("%d is given before it is stored", next.seq)
				}
				seg, err := s.write(schema.KindMemory, e)
				s.written(schema.KindMemory, e, seg, err)
				if idOf(t, schema.KindMemory, e.data) != 1 {
					t.Error("its bytes were used again")
				}
			}
			for s.writeRound() {
			}
			if tt == "after" {
				s.acked(schema.KindMemory)
			}
			same(t, "then", takeAll(t, s, schema.KindMemory), from(2, 3))
			if l := s.level(); l.batches != 0 || l.bytes != 0 {
				t.Errorf("left: %+v", l)
			}
		})
	}
}

// TestOutboxReadOnly: what is there is sent, what is new goes through memory behind it, and is stored when the disk can
// be written.
func TestOutboxReadOnly(t *testing.T) {
	disk := smallDisk(t, "8m")
	dir := filepath.Join(disk, "outbox")
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(unix.MS_RDONLY)
	log := &logged{}
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, log.logger()) // not even the directory can be made
	pushID(s, schema.KindMemory, 1, 1000)
	same(t, "no directory", takeAll(t, s, schema.KindMemory), from(1, 1))
	s.settle()
	if log.count("cannot be written") != 1 || log.count("mount its disk writable") != 1 {
		t.Errorf("it says %s", &log.text)
	}
	remount(0)
	s.settle()
	for id := 2; id <= 20; id++ {
		pushID(s, schema.KindMemory, id, 1000)
	}
	for s.writeRound() {
	}
	if l := s.level(); l.outbox.batches != 19 {
		t.Errorf("%d batches are stored", l.outbox.batches)
	}
	s.finish()
	remount(unix.MS_RDONLY)
	s = spoolAt(t, dir, 1<<20, 1<<30, 10_000, log.logger())
	for id := 21; id <= 23; id++ {
		pushID(s, schema.KindMemory, id, 1000)
		s.writeRound()
	}
	same(t, "read only", takeAll(t, s, schema.KindMemory), from(2, 23))
	s.settle()
	remount(0)
	s.settle()
	if left := files(t, dir, "*.memory"); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	s.finish()
	if l := s.level(); l.batches != 0 || l.droppedN != 0 {
		t.Errorf("%+v", l)
	}
}

// TestOutboxCursorIsReadLater: a cursor that cannot be read for want of something else is not taken for none.
func TestOutboxCursorIsReadLater(t *testing.T) {
	b := newBooks(t, 1<<20, 1<<30, 10_000)
	b.fill(schema.KindMemory, 5, 100)
	b.take(schema.KindMemory, 3)
	b.s.finish()
	path := filepath.Join(b.dir, cursorName)
	if err := unix.Mount("/proc/self/mem", path, "", unix.MS_BIND, ""); err != nil { // reading it is EIO
		t.Skipf("nothing can be mounted, which takes root: %v", err)
	}
	defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	b.start()
	if b.settle(); !b.s.outbox.failing || !errors.Is(b.s.outbox.bad, unix.EIO) {
		t.Errorf("it goes on without: %v", b.s.outbox.bad)
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if l := b.s.level(); l.batches != 2 || l.outbox.damaged != 0 {
		t.Errorf("then: %+v", l)
	}
	b.close()
}

// TestOutboxComesLater: the disk is mounted when the producer runs already, and holds batches of an earlier run.
func TestOutboxComesLater(t *testing.T) {
	disk := smallDisk(t, "1m")
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk, "outbox")
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
	got := make(chan int)
	go func() {
		e, err := s.next(t.Context(), schema.KindMemory) // waits
		if err != nil {
			t.Error(err)
		}
		got <- int(e.seq)
	}()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "mode=700,size=8m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	earlier := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
	pushID(earlier, schema.KindMemory, 1, 1000)
	earlier.writeRound()
	earlier.finish()
	s.settle()
	if id := <-got; id != 1 {
		t.Errorf("got %d", id)
	}
	s.acked(schema.KindMemory)
	pushID(s, schema.KindMemory, 2, 1000)
	s.writeRound()
	same(t, "then", takeAll(t, s, schema.KindMemory), from(2, 2))
}

// comesLater is a spool that gave out memory batch 100 from memory, with 101 to 103 behind it, before a disk came that holds 1
// to 5 of an earlier run.
func comesLater(t *testing.T) *spool {
	dir := written(t, 5, true)
	s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 10_000, quiet())
	s.leave()
	s.outbox.dir = dir
	s.outbox.failed(unix.EROFS) // as if it could not be entered
	for id := 100; id <= 103; id++ {
		pushID(s, schema.KindMemory, id, 1000)
	}
	if e := try(s, schema.KindMemory); e == nil || e.seq != 100 {
		t.Fatal("memory alone gives nothing out")
	}
	return s
}

// TestOutboxComesLaterInFlight: the ack of what memory alone gave out is not taken for that of earlier runs' batches, which come,
// also after a crash.
func TestOutboxComesLaterInFlight(t *testing.T) {
	for _, tt := range []struct {
		acked string
		want  []int
	}{{"before", append(from(1, 5), from(101, 103)...)}, {"while", append(from(1, 5), from(100, 103)...)}, {"after", append(from(1, 5), from(100, 103)...)}} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.acked, ", crash ", crash), func(t *testing.T) {
				s := comesLater(t)
				if tt.acked == "before" {
					s.acked(schema.KindMemory)
				}
				s.settle()
				if tt.acked == "while" {
					e := s.claim(schema.KindMemory)
					s.acked(schema.KindMemory)
					seg, err := s.write(schema.KindMemory, e)
					s.written(schema.KindMemory, e, seg, err)
				}
				for s.writeRound() {
				}
				if tt.acked == "after" {
					s.acked(schema.KindMemory)
				}
				if s.settle(); crash {
					s.crash()
					s = spoolAt(t, s.outbox.dir, 1<<20, 1<<30, 10_000, quiet())
				}
				same(t, "then", takeAll(t, s, schema.KindMemory), tt.want)
				if l := s.level(); l.batches != 0 || l.bytes != 0 || l.droppedN != 0 {
					t.Errorf("left: %+v", l)
				}
			})
		}
	}
}

// TestOutboxReadIsPatient: a file that cannot be opened for want of something else is not given up.
func TestOutboxReadIsPatient(t *testing.T) {
	dir := written(t, 3, true)
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
	path := files(t, dir, "*.memory")[0]
	move(t, path, path+".away")
	if err := os.Symlink(path, path); err != nil { // ELOOP
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.next(ended, schema.KindMemory); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	move(t, path+".away", path)
	same(t, "then", takeAll(t, s, schema.KindMemory), from(1, 3))
	if strings.Contains(path, "away") || s.level().droppedN > 0 {
		t.Error("batches were given up")
	}
}

// TestOutboxFirstForm: a file from before runs were named is read, and comes first.
func TestOutboxFirstForm(t *testing.T) {
	dir := t.TempDir()
	s := spoolAt(t, dir, 1<<20, 1<<30, 1<<20, quiet())
	s.outbox.run = ""
	s.push(schema.KindMemory, batchOf(schema.KindMemory, 1, 100), encoded{seq: 1, events: 1})
	s.writeRound()
	s.finish()
	path := files(t, dir, "*.memory")[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	le, at := binary.LittleEndian, len(segmentMagic)
	names := data[beginBytes-2 : beginBytes+len("c\x00h")] // with their length, without the zero before the run
	le.PutUint16(names, uint16(len("c\x00h")))
	le.PutUint16(data[at:], 1)
	le.PutUint32(data[at+2:], crc32.Checksum(names, castagnoli))
	data = slices.Delete(data, beginBytes+len("c\x00h"), beginBytes+len("c\x00h")+1)
	if err := os.WriteFile(path, data[:len(data)-headBytes], 0o600); err != nil { // the ending says where it is
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, cursorName)); err != nil { // it says where the first batch was
		t.Fatal(err)
	}
	s = spoolAt(t, dir, 1<<20, 1<<30, 1<<20, quiet())
	s.push(schema.KindHost, batchOf(schema.KindHost, 1, 100), encoded{seq: 1})
	s.writeRound()
	if s.head(schema.KindHost) != nil {
		t.Error("a later run comes first")
	}
	e, err := s.next(t.Context(), schema.KindMemory)
	if err != nil || e.seq != 1 || e.from == nil || e.from.origin != (origin{"c", "h"}) {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestOutboxBeforeDebts: what a program left that kept no debts is sent, but for what was acked. testdata/outbox stays as it is.
func TestOutboxBeforeDebts(t *testing.T) {
	dir := copyDir(t, "testdata/outbox")
	s := spoolAt(t, dir, 1<<20, 1<<30, 3_000, quiet())
	same(t, "memory", takeAll(t, s, schema.KindMemory), from(2, 5))
	same(t, "launches", takeAll(t, s, schema.KindLaunch), from(6, 6))
	s.finish()
	if l := s.level(); l.droppedEvents != 0 || l.outbox.damaged != 0 || len(files(t, dir, "*.*")) > 0 {
		t.Errorf("%+v, files %v", l, files(t, dir, "*.*"))
	}
}

// TestOutboxGivesUpWhatHadNoDebts: what a run had lost that kept no debts is told when what is left of it is given up.
func TestOutboxGivesUpWhatHadNoDebts(t *testing.T) {
	b := newBooks(t, 1<<20, 100_000, 10_000)
	lostBefore(b, func(b *books) { b.s.finish() })
	b.s.crash()
	path := files(t, b.dir, "*.memory")[0]
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := stat(t, path).Size()
	h, err := readHead(f, size-headBytes, size)
	if err != nil || h.bytes != allOnes {
		t.Fatalf("%+v, %v", h, err)
	}
	var raw [headBytes]byte
	h.events = 500
	h.put(raw[:])
	if _, err := f.WriteAt(raw[:], size-headBytes); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.dir, cursorName)); err != nil {
		t.Fatal(err)
	}
	b.start()
	for b.s.dropSegment(schema.KindMemory) {
	}
	b.close()
}

// TestOutboxPowerKeepsDebts: what the cursor owes outlives power, also when it is written anew, and what is taken over and told is
// not owed again.
func TestOutboxPowerKeepsDebts(t *testing.T) {
	b := newBooks(t, 1<<20, 1<<30, 10_000)
	b.s.finish()
	disk, cutPower := fileSystem(t)
	b.dir = filepath.Join(disk, "outbox")
	b.start()
	b.fill(schema.KindMemory, 5, 100)
	b.s.dropped, b.made = 500, b.made+500
	b.settle()
	b.take(schema.KindMemory, 5)
	b.settle() // the cursor moves
	for _, names := range []bool{true, false} {
		b.s.crash()
		cutPower(names)
		b.start()
		b.settle()
		b.fill(schema.KindMemory, 1, 100)
		b.take(schema.KindMemory, 1)
		b.settle()
	}
	b.close()
}

// fileSystem is one that can lose power: what was not synced of files is gone then, and of names if they are not kept.
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
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20), run("mkfs.ext4", "-q", image), mount()); err != nil {
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

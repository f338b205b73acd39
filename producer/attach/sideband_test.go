package attach

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/library"
)

// sideBytes is a record as Linux writes it: header, words of 4 bytes, a padded string, the time.
func sideBytes(kind uint32, misc uint16, words []uint32, name string, time uint64) []byte {
	le := binary.LittleEndian
	b := make([]byte, sideHeader)
	for _, w := range words {
		b = le.AppendUint32(b, w)
	}
	if name != "" {
		b = append(b, name...)
		b = append(b, make([]byte, 8-len(name)%8)...)
	}
	b = le.AppendUint64(b, time)
	le.PutUint32(b, kind)
	le.PutUint16(b[4:], misc)
	le.PutUint16(b[6:], uint16(len(b)))
	return b
}

func sideMapping(path string) []byte {
	words := []uint32{
		12, 13, 0x7000, 0x7f, 0x3000, 0, 0, 0, // pid, tid, start, length, offset
		0xfd, 1, 4711, 0, 0, 0, 5, 2, // device, inode, generation, protection, flags
	}
	return sideBytes(unix.PERF_RECORD_MMAP2, 2, words, path, 99)
}

func TestParseSide(t *testing.T) {
	mapping := sideRecord{
		kind: sideMap, time: 99, pid: 12, tid: 13, mapping: library.Mapping{PID: 12,
			Inode: library.Inode{Dev: unix.Mkdev(0xfd, 1), Ino: 4711}, Start: 0x7f00007000, End: 0x7f0000a000},
	}
	at := func(path string) sideRecord { m := mapping; m.mapping.Path = path; return m }
	renamed := [16]byte{'a', 'b'}
	tests := []struct {
		name string
		raw  []byte
		want sideRecord // of kind 0: ignored
	}{
		{"driver", sideMapping("/usr/lib/libcuda.so.1"), at("/usr/lib/libcuda.so.1")},
		{"versioned", sideMapping("/libcuda.so.580.159"), at("/libcuda.so.580.159")},
		{"deleted", sideMapping("/a b/libcuda.so.1 (deleted)"), at("/a b/libcuda.so.1 (deleted)")},
		{"name of 8 bytes and padding", sideMapping("/x/libcuda.so.12"), at("/x/libcuda.so.12")},
		{"PyTorch", sideMapping("/env/lib/python3.12/site-packages/torch/lib/libc10.so"),
			at("/env/lib/python3.12/site-packages/torch/lib/libc10.so")},
		{"PyTorch's other library", sideMapping("/env/torch/lib/libc10_cuda.so"), sideRecord{}},
		{"other library", sideMapping("/usr/lib/libcudart.so.13"), sideRecord{}},
		{"folder of that name", sideMapping("/libcuda.so.d/other.so"), sideRecord{}},
		{"no file", sideMapping("//anon"), sideRecord{}},
		{"empty path", sideMapping(""), sideRecord{}},
		{"renamed", sideBytes(unix.PERF_RECORD_COMM, 0, []uint32{12, 13}, "ab", 7),
			sideRecord{kind: sideName, time: 7, pid: 12, tid: 13, name: renamed}},
		{"exec", sideBytes(unix.PERF_RECORD_COMM, commExec, []uint32{12, 13}, "ab", 7),
			sideRecord{kind: sideExec, time: 7, pid: 12, tid: 13, name: renamed}},
		{"fork", sideBytes(unix.PERF_RECORD_FORK, 0, []uint32{12, 3, 12, 3, 7, 0}, "", 7),
			sideRecord{kind: sideFork, time: 7, pid: 12, tid: 12, parent: 3}},
		{"new thread", sideBytes(unix.PERF_RECORD_FORK, 0, []uint32{12, 12, 13, 12, 7, 0}, "", 7), sideRecord{}},
		{"exit", sideBytes(unix.PERF_RECORD_EXIT, 0, []uint32{12, 3, 12, 3, 7, 0}, "", 7),
			sideRecord{kind: sideExit, time: 7, pid: 12, tid: 12, parent: 3}},
		{"lost", sideBytes(unix.PERF_RECORD_LOST, 0, []uint32{1, 0, 5, 0}, "", 7),
			sideRecord{kind: sideLost, time: 7, lost: 5}},
		{"lost, cut", sideBytes(unix.PERF_RECORD_LOST, 0, []uint32{1, 0}, "", 7), sideRecord{}},
		{"fork, cut", sideBytes(unix.PERF_RECORD_FORK, 0, []uint32{12, 3}, "", 7), sideRecord{}},
		{"sample", sideBytes(unix.PERF_RECORD_SAMPLE, 0, []uint32{1, 2}, "", 7), sideRecord{}},
		{"header only", sideBytes(unix.PERF_RECORD_COMM, 0, nil, "", 7)[:8], sideRecord{}},
		{"nothing", nil, sideRecord{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseSide(tt.raw)
			if ok != (tt.want.kind != 0) || ok && got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, ok, tt.want)
			}
		})
	}
}

func TestRejectingAllocatesNothing(t *testing.T) {
	raw := sideMapping("/usr/lib/x86_64-linux-gnu/libcudart.so.13")
	if n := testing.AllocsPerRun(100, func() { parseSide(raw) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestSideRing reads records that wrap around the end of a ring, and stops at an impossible size.
func TestSideRing(t *testing.T) {
	driver := sideMapping("/usr/lib/libcuda.so.1")
	ring := make([]byte, 256)
	write := func(at uint64, raw []byte) uint64 {
		for i, b := range raw {
			ring[(at+uint64(i))&255] = b
		}
		return at + uint64(len(raw))
	}
	for start := uint64(0); start < 512; start += 8 {
		var s sideband
		head := write(write(start, driver), driver)
		s.read(ring, start, head)
		if len(s.records) != 2 || s.records[1].mapping.Path != "/usr/lib/libcuda.so.1" {
			t.Fatalf("from %d: read %+v", start, s.records)
		}
	}
	for _, size := range []uint16{0, 4, 12, 1 << 15} {
		var s sideband
		head := write(write(0, driver), driver)
		binary.LittleEndian.PutUint16(ring[len(driver)+6:], size)
		s.read(ring, 0, head)
		if len(s.records) != 1 {
			t.Errorf("size %d: read %+v", size, s.records)
		}
	}
}

func FuzzSideband(f *testing.F) {
	f.Add(slices.Concat(sideMapping("/libcuda.so.1"), sideBytes(unix.PERF_RECORD_FORK, 0, []uint32{1, 2, 3, 4, 0, 0},
		"", 7)), uint16(0))
	f.Fuzz(func(t *testing.T, raw []byte, at uint16) {
		parseSide(raw)
		ring := make([]byte, 1024)
		start := uint64(at) &^ 7
		n := uint64(min(len(raw), len(ring)) &^ 7)
		for i := range n {
			ring[(start+i)&1023] = raw[i]
		}
		var s sideband
		s.read(ring, start, start+n)
	})
}

package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/procfs"

	"github.com/gputap/gputap/schema"
)

func TestLibrariesInMaps(t *testing.T) {
	maps := `7f0000000000-7f0000001000 r--p 00000000 fd:01 4711                       /usr/lib/libcuda.so.580.159
7f0000001000-7f0000002000 r-xp 00001000 fd:01 4711                       /usr/lib/libcuda.so.580.159
7f0000003000-7f0000004000 r-xp 00000000 fd:01 4712                       /usr/lib/libcudart.so.13
7f0000005000-7f0000006000 r-xp 00000000 00:2a 99                         /opt/with space/libcuda.so.1 (deleted)
7f0000007000-7f0000008000 rw-p 00000000 00:00 0
7f0000009000-7f000000a000 r-xp 00000000 fd:01 5                          /data/libcuda.so.d/other.so
7f000000b000-7f000000c000 r-xp 00000000 fd:01 6                          /env/torch/lib/libc10.so
7f000000d000-7f000000e000 r-xp 00000000 fd:01 7                          /env/torch/lib/libc10_cuda.so
`
	found := parseMaps(maps, 12, func(line string) bool { return Of(line) != "" })
	if len(found) != 4 || found[3].Path != "/env/torch/lib/libc10.so" || Of(found[3].Path) != schema.TorchLibrary {
		t.Fatalf("found %d mappings, want 3 of the driver and 1 of PyTorch: %+v", len(found), found)
	}
	found = slices.DeleteFunc(found, func(m Mapping) bool { return !m.driver() })
	if len(found) != 3 {
		t.Fatalf("found %d mappings of the driver, want 3: %+v", len(found), found)
	}
	second := Mapping{PID: 12, Start: 0x7f0000001000, End: 0x7f0000002000, Path: "/usr/lib/libcuda.so.580.159",
		Inode: Inode{Dev: unix.Mkdev(0xfd, 1), Ino: 4711}, offset: 0x1000, executable: true}
	if found[1] != second {
		t.Errorf("got %+v, want %+v", found[1], second)
	}
	if got, want := found[0].pathFromHere(), "/proc/12/root/usr/lib/libcuda.so.580.159"; got != want {
		t.Errorf("opens %s, want %s", got, want)
	}
	if found[2].Inode.Ino != 99 || found[2].Path != "/opt/with space/libcuda.so.1 (deleted)" {
		t.Errorf("the third is %+v", found[2])
	}
}

func TestNamedLibraryMustExist(t *testing.T) {
	if _, err := OnHost([]string{"/no/such/libcuda.so.1"}); err == nil {
		t.Error("no error")
	}
	found, err := OnHost([]string{stubPath, stubPath})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 || found[0] != stubPath || (len(found) > 1 && found[1] == stubPath) {
		t.Errorf("found %v, want the named one first and once", found)
	}
}

func TestForCommand(t *testing.T) {
	want, err := filepath.Abs(stubPath)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", "")
	if got := ForCommand("../../bin/workload"); len(got) != 1 || !sameFile(t, got[0], want) {
		t.Errorf("by the program's own search path: %v, want %s", got, want)
	}
	if got := ForCommand("/bin/sh"); len(got) != 0 {
		t.Errorf("sh would find %v", got)
	}
	t.Setenv("LD_LIBRARY_PATH", "/no/such/dir:"+filepath.Dir(want))
	if got := ForCommand("/bin/sh"); !slices.Equal(got, []string{want}) {
		t.Errorf("by LD_LIBRARY_PATH: %v, want %s", got, want)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	x, err := inodeAt(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := inodeAt(b)
	if err != nil {
		t.Fatal(err)
	}
	return x == y
}

// TestScan maps a file with the driver's name into this very process.
func TestScan(t *testing.T) {
	var s Scanner
	mine := func() (inodes []uint64) {
		err := s.Scan(false, func(pid uint32, found []Mapping) {
			for _, m := range found {
				if int(pid) == os.Getpid() {
					inodes = append(inodes, m.Inode.Ino)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return inodes
	}
	mapFile := func(name string) uint64 {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		data, err := unix.Mmap(int(file.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(data) })
		id, err := inodeAt(path)
		if err != nil {
			t.Fatal(err)
		}
		return id.Ino
	}
	if got := mine(); len(got) != 0 {
		t.Fatalf("found %v before anything was mapped", got)
	}
	first := mapFile("libcuda.so.1")
	if got := mine(); !slices.Equal(got, []uint64{first}) {
		t.Fatalf("found %v, want %d", got, first)
	}
	second := mapFile("libcuda.so.580.159")
	got := mine()
	slices.Sort(got)
	want := []uint64{first, second}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("found %v, want %v", got, want)
	}
}

func BenchmarkScan(b *testing.B) {
	var s Scanner
	for b.Loop() {
		if err := s.Scan(false, func(uint32, []Mapping) {}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestUnreadableIsNotEnded: a process that gputap cannot read for lack of file descriptors does not count as ended.
func TestUnreadableIsNotEnded(t *testing.T) {
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	own, gone := uint32(os.Getpid()), uint32(ended.ProcessState.Pid())
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err1 := librariesOf(own, own)
	_, err2 := addressSpace(own)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err1 == nil || err2 == nil || procfs.Ended(err1) || procfs.Ended(err2) {
		t.Errorf("a process that cannot be read gives %v and %v", err1, err2)
	}
	_, err1 = librariesOf(gone, gone)
	_, err2 = addressSpace(gone)
	if !procfs.Ended(err1) || !procfs.Ended(err2) {
		t.Errorf("a process that ended gives %v and %v", err1, err2)
	}
}

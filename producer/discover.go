package producer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// wellKnown are the places of the driver library that the ldconfig cache of a host may not list.
var wellKnown = []string{
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
}

// HostLibraries are the driver libraries of this host that exist, each file once: what the user
// named, then the ldconfig cache, then well-known places. A path that the user named and that is
// not there is an error.
func HostLibraries(named []string) ([]string, error) {
	var found []string
	seen := map[inode]bool{}
	add := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if id := inodeOfInfo(info); !seen[id] {
			seen[id] = true
			found = append(found, path)
		}
		return nil
	}
	for _, path := range named {
		if err := add(path); err != nil {
			return nil, fmt.Errorf("library %s: %w", path, err)
		}
	}
	cached, err := ldCache("/etc/ld.so.cache", "libcuda.so.1")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, path := range append(cached, wellKnown...) {
		_ = add(path) // a stale entry
	}
	return found, nil
}

// mapped is a driver library that a running process has mapped.
type mapped struct {
	inode inode
	path  string // as the process sees it
	pid   int
}

// open is where the file can be opened from here: through the process's own root.
func (m mapped) open() string { return fmt.Sprintf("/proc/%d/root%s", m.pid, m.path) }

// scanner finds driver libraries that running processes have mapped. It remembers the size of each
// process's address space: mapping a library changes it, so only then are the maps read again. One
// goroutine at a time uses it.
type scanner struct {
	sizes map[int]string
	maps  bytes.Buffer
	statm bytes.Buffer
}

// scan finds every libcuda.so* in processes whose address space has changed since the last scan.
// Processes that end meanwhile, and those that may not be read, are passed over.
func (s *scanner) scan() ([]mapped, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []mapped
	now := make(map[int]string, len(s.sizes))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		size, ok := s.size(e.Name())
		if !ok {
			continue
		}
		now[pid] = size
		if s.sizes[pid] == size {
			continue
		}
		s.maps.Reset()
		if readInto(&s.maps, "/proc/"+e.Name()+"/maps") && bytes.Contains(s.maps.Bytes(), []byte("/libcuda.so")) {
			found = append(found, librariesIn(&s.maps, pid)...)
		}
	}
	s.sizes = now
	return found, nil
}

// size is the first field of /proc/PID/statm: pages of address space, "0" for Linux's own threads.
func (s *scanner) size(pid string) (string, bool) {
	s.statm.Reset()
	if !readInto(&s.statm, "/proc/"+pid+"/statm") {
		return "", false
	}
	size, _, ok := bytes.Cut(s.statm.Bytes(), []byte{' '})
	return string(size), ok
}

func readInto(buf *bytes.Buffer, path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = buf.ReadFrom(f)
	return err == nil
}

// librariesIn reads one process's maps: "start-end perms offset major:minor inode path".
func librariesIn(maps *bytes.Buffer, pid int) []mapped {
	var found []mapped
	seen := map[inode]bool{}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		if !strings.Contains(line, "/libcuda.so") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		path := line[strings.Index(line, "/"):]
		if !strings.HasPrefix(filepath.Base(path), "libcuda.so") {
			continue
		}
		id, ok := parseInode(fields[3], fields[4])
		if ok && !seen[id] {
			seen[id] = true
			found = append(found, mapped{inode: id, path: path, pid: pid})
		}
	}
	return found
}

func parseInode(device, number string) (inode, bool) {
	major, minor, ok := strings.Cut(device, ":")
	ma, err1 := strconv.ParseUint(major, 16, 32)
	mi, err2 := strconv.ParseUint(minor, 16, 32)
	ino, err3 := strconv.ParseUint(number, 10, 64)
	return inode{dev: unix.Mkdev(uint32(ma), uint32(mi)), ino: ino}, ok && err1 == nil && err2 == nil && err3 == nil
}

func inodeOf(f *os.File) (inode, error) {
	info, err := f.Stat()
	if err != nil {
		return inode{}, err
	}
	return inodeOfInfo(info), nil
}

func inodeOfInfo(info os.FileInfo) inode {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{dev: st.Dev, ino: st.Ino}
}

func inodeAt(path string) (inode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return inode{}, err
	}
	return inodeOfInfo(info), nil
}

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

	"github.com/gputap/gputap/schema"
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
	inode    inode  // as maps and side-band records write it
	path     string // as the process sees it
	pid      int
	area     area         // one of its mappings
	at       schema.KTime // no call was made before
	recorded bool         // at is the very time
}

// open is where the file can be opened from here: through the process's own root.
func (m mapped) open() string { return fmt.Sprintf("/proc/%d/root%s", m.pid, m.path) }

// scanner finds driver libraries that running processes have mapped. It remembers the size of each
// process's address space: mapping a library changes it, so only then are the maps read again. One
// goroutine at a time uses it.
type scanner struct {
	sizes  map[int]string
	hidden map[uint32]bool // processes that are there and cannot be looked into
	maps   bytes.Buffer
	statm  bytes.Buffer
}

// scan visits the processes whose address space has changed since the last scan, with every
// libcuda.so* that they have mapped. Processes that end meanwhile, and those that may not be read, are
// passed over.
func (s *scanner) scan(visit func(pid int, found []mapped)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	now := make(map[int]string, len(s.sizes))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		size, err := s.size(e.Name())
		if err != nil {
			if !isGone(err) {
				now[pid] = s.sizes[pid]
				s.hide(pid)
			}
			continue
		}
		now[pid] = size
		if s.sizes[pid] == size {
			continue
		}
		visit(pid, s.libraries(e.Name(), pid))
	}
	s.sizes = now
	return nil
}

// alive reports whether the last scan saw a process.
func (s *scanner) alive(pid int) bool {
	_, ok := s.sizes[pid]
	return ok
}

// libraries reads one process's maps, dir being its folder in /proc.
func (s *scanner) libraries(dir string, pid int) []mapped {
	s.maps.Reset()
	err := readInto(&s.maps, "/proc/"+dir+"/maps")
	if err != nil && !isGone(err) {
		s.hide(pid)
	}
	if err != nil || !bytes.Contains(s.maps.Bytes(), []byte("/libcuda.so")) {
		return nil
	}
	return librariesIn(&s.maps, pid)
}

// mappedBy is what a process has mapped now, even where only its leader has ended.
func (s *scanner) mappedBy(pid int) []mapped {
	dir := strconv.Itoa(pid)
	found := s.libraries(dir, pid)
	if found != nil {
		return found
	}
	threads, _ := os.ReadDir("/proc/" + dir + "/task")
	for _, t := range threads {
		if found = s.libraries(dir+"/task/"+t.Name(), pid); found != nil {
			break
		}
	}
	return found
}

// size is the first field of /proc/PID/statm: pages of address space, "0" for Linux's own threads.
func (s *scanner) size(pid string) (string, error) {
	s.statm.Reset()
	if err := readInto(&s.statm, "/proc/"+pid+"/statm"); err != nil {
		return "", err
	}
	size, _, ok := bytes.Cut(s.statm.Bytes(), []byte{' '})
	if !ok {
		return "", fs.ErrNotExist // it ends at this moment
	}
	return string(size), nil
}

func (s *scanner) hide(pid int) {
	if s.hidden == nil {
		s.hidden = map[uint32]bool{}
	}
	s.hidden[uint32(pid)] = true
}

// isGone tells a process that ended from one that cannot be looked into, for want of a right or of files.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func readInto(buf *bytes.Buffer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = buf.ReadFrom(f)
	return err
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
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if ok && err1 == nil && err2 == nil && !seen[id] {
			seen[id] = true
			found = append(found, mapped{inode: id, path: path, pid: pid, area: area{start, end}})
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

// image is one executable mapping of a driver library in a process.
type image struct {
	inode      inode
	start, end uint64
	offset     uint64 // in the file
}

// driverImages are where a process has driver libraries mapped; not nil, but empty when it is gone.
func driverImages(pid uint32) []image {
	list := []image{}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return list
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.Contains(fields[1], "x") || !strings.HasPrefix(filepath.Base(fields[5]), "libcuda.so") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		offset, err3 := strconv.ParseUint(fields[2], 16, 64)
		id, ok := parseInode(fields[3], fields[4])
		if ok && err1 == nil && err2 == nil && err3 == nil {
			list = append(list, image{inode: id, start: start, end: end, offset: offset})
		}
	}
	return list
}

package library

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/gputap/gputap/producer/procfs"
)

// Mapped is a driver library that a process has mapped.
type Mapped struct {
	Inode Inode  // as maps and side-band records show it
	Path  string // as the process sees it
	PID   int
	Area  Area // one of its mappings
}

// Scanner finds driver libraries that running processes have mapped. It remembers the size of each process's address
// space and reads the maps again only when the size changed: mapping a library changes it. One goroutine at a time may
// use it.
type Scanner struct {
	sizes      map[int]string  // by pid, of the last scan
	unreadable map[uint32]bool // processes that run and that gputap may not look into
	maps       bytes.Buffer
	statm      bytes.Buffer
}

// Scan calls visit for each process whose address space changed since the last scan, with the driver libraries that
// it has mapped. It leaves out processes that end meanwhile or that it may not read.
func (s *Scanner) Scan(visit func(pid int, found []Mapped)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	sizes := make(map[int]string, len(s.sizes))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		size, err := s.size(e.Name())
		if err != nil {
			if !procfs.Ended(err) {
				sizes[pid] = s.sizes[pid]
				s.addUnreadable(pid)
			}
			continue
		}
		sizes[pid] = size
		if s.sizes[pid] == size {
			continue
		}
		visit(pid, s.libraries(e.Name(), pid))
	}
	s.sizes = sizes
	return nil
}

// ScanAll is Scan for all processes, changed or not.
func (s *Scanner) ScanAll(visit func(pid int, found []Mapped)) error {
	s.sizes = nil
	return s.Scan(visit)
}

// PIDs calls visit for each process that the last scan found.
func (s *Scanner) PIDs(visit func(pid int)) {
	for pid := range s.sizes {
		visit(pid)
	}
}

// Found reports whether the last scan found a process.
func (s *Scanner) Found(pid int) bool {
	_, ok := s.sizes[pid]
	return ok
}

// Unreadable reports whether a process runs and gputap may not look into it.
func (s *Scanner) Unreadable(pid uint32) bool { return s.unreadable[pid] }

// Remove discards the entry of a process that ended.
func (s *Scanner) Remove(pid uint32) { delete(s.unreadable, pid) }

// MappedBy returns the driver libraries that a process has mapped now. It also works while only the leader of the
// process has ended.
func (s *Scanner) MappedBy(pid int) []Mapped {
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

// libraries reads one process's maps; dir is its folder in /proc.
func (s *Scanner) libraries(dir string, pid int) []Mapped {
	s.maps.Reset()
	err := readInto(&s.maps, "/proc/"+dir+"/maps")
	if err != nil && !procfs.Ended(err) {
		s.addUnreadable(pid)
	}
	if err != nil {
		return nil
	}
	return librariesIn(s.maps.Bytes(), pid)
}

// librariesIn returns each driver library in one process's maps once.
func librariesIn(maps []byte, pid int) []Mapped {
	if !bytes.Contains(maps, []byte("/libcuda.so")) {
		return nil
	}
	var found []Mapped
	seen := map[Inode]bool{}
	for _, r := range parseMaps(maps) {
		if r.driver() && !seen[r.inode] {
			seen[r.inode] = true
			found = append(found, Mapped{Inode: r.inode, Path: r.path, PID: pid, Area: r.Area})
		}
	}
	return found
}

// size returns the first field of /proc/PID/statm: pages of address space, "0" for Linux's own threads.
func (s *Scanner) size(pid string) (string, error) {
	s.statm.Reset()
	if err := readInto(&s.statm, "/proc/"+pid+"/statm"); err != nil {
		return "", err
	}
	size, _, ok := bytes.Cut(s.statm.Bytes(), []byte{' '})
	if !ok {
		return "", fs.ErrNotExist // it is ending
	}
	return string(size), nil
}

func (s *Scanner) addUnreadable(pid int) {
	if s.unreadable == nil {
		s.unreadable = map[uint32]bool{}
	}
	s.unreadable[uint32(pid)] = true
}

func readInto(buf *bytes.Buffer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = buf.ReadFrom(f)
	return err
}

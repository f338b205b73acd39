package library

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gputap/gputap/producer/procfs"
)

// Scanner finds the driver libraries, and PyTorch's, that running processes have mapped. It remembers the size of each
// process's address space and reads the maps again only when the size changed: mapping a library changes it. One
// goroutine at a time may use it.
type Scanner struct {
	Processes map[uint32]*Process // by pid, of the last scan
}

// Process is a running process.
type Process struct {
	Unreadable bool   // gputap may not look into it
	size       string // see addressSpace
}

// Scan calls visit for each process whose address space changed since the last scan, or for all, with the libraries
// that it has mapped. It leaves out processes that end meanwhile or that it may not read.
func (s *Scanner) Scan(all bool, visit func(pid uint32, found []Mapping)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	processes := make(map[uint32]*Process, len(s.Processes))
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		pid := uint32(n)
		size, err := addressSpace(pid)
		if procfs.Ended(err) {
			continue
		}
		p := cmp.Or(s.Processes[pid], &Process{})
		processes[pid] = p
		if err != nil {
			*p = Process{Unreadable: true}
			continue
		}
		if size == p.size && !all {
			continue
		}
		found, err := librariesOf(pid, pid)
		*p = Process{size: size, Unreadable: err != nil && !procfs.Ended(err)}
		visit(pid, found)
	}
	s.Processes = processes
	return nil
}

// MappedBy returns the driver libraries, and PyTorch's, that a process has mapped now. It also works while only the
// leader of the process has ended.
func MappedBy(pid uint32) []Mapping {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		id, _ := strconv.ParseUint(t.Name(), 10, 32)
		if found, _ := librariesOf(pid, uint32(id)); len(found) > 0 {
			return found
		}
	}
	return nil
}

// addressSpace returns the first field of /proc/PID/statm: pages of address space, "0" for Linux's own threads.
func addressSpace(pid uint32) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	size, _, _ := strings.Cut(string(b), " ")
	return size, err
}

package library

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inode identifies a file of one file system; a path may name another file in each mount namespace.
type Inode struct {
	Dev uint64
	Ino uint64
}

func inodeAt(path string) (Inode, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		return Inode{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return Inode{Dev: stat.Dev, Ino: stat.Ino}, nil
}

// Mapping is a part of a process's memory.
type Mapping struct {
	PID        uint32
	Start, End uint64 // addresses
	Inode      Inode  // as maps and side-band records show it
	Path       string // as the process sees it; "" for anonymous memory

	offset     uint64 // in the file
	executable bool
}

func (m *Mapping) contains(address uint64) bool { return address >= m.Start && address < m.End }

// driver reports whether a driver library is mapped.
func (m *Mapping) driver() bool { return strings.HasPrefix(filepath.Base(m.Path), "libcuda.so") }

// mappingsOf reads the mappings of a process.
func mappingsOf(pid uint32) ([]Mapping, error) { return readMaps(pid, pid, "") }

// librariesOf reads the mappings of driver libraries of a process from its thread's maps: those of a leader that ended
// are empty.
func librariesOf(pid, thread uint32) ([]Mapping, error) {
	list, err := readMaps(pid, thread, "/libcuda.so")
	return slices.DeleteFunc(list, func(m Mapping) bool { return !m.driver() }), err
}

func readMaps(pid, thread uint32, text string) ([]Mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/maps", pid, thread))
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	return parseMaps(string(b), pid, text), nil
}

// parseMaps parses the lines "start-end rights offset major:minor inode path" that contain a text. It leaves out lines
// that it cannot parse.
func parseMaps(maps string, pid uint32, text string) []Mapping {
	var list []Mapping
	for line := range strings.Lines(maps) {
		if !strings.Contains(line, text) {
			continue
		}
		m := Mapping{PID: pid}
		var rights string
		var major, minor uint32
		_, err := fmt.Sscanf(line, "%x-%x %s %x %x:%x %d",
			&m.Start, &m.End, &rights, &m.offset, &major, &minor, &m.Inode.Ino)
		if err != nil {
			continue
		}
		m.executable = strings.Contains(rights, "x")
		m.Inode.Dev = unix.Mkdev(major, minor)
		if i := strings.IndexByte(line, '/'); i >= 0 {
			m.Path = strings.TrimSuffix(line[i:], "\n")
		}
		list = append(list, m)
	}
	return list
}

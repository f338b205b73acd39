package library

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
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
func (m *Mapping) driver() bool { return Of(m.Path) == schema.DriverLibrary }

// Of returns which library a file is by its name: schema.DriverLibrary or schema.TorchLibrary; "" for other files.
func Of(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for _, library := range [...]string{schema.DriverLibrary, schema.TorchLibrary} {
		if strings.HasPrefix(name, library) {
			return library
		}
	}
	return ""
}

// mappingsOf reads the mappings of a process.
func mappingsOf(pid uint32) ([]Mapping, error) {
	return readMaps(pid, pid, func(string) bool { return true })
}

// librariesOf reads the mappings of driver libraries and of PyTorch's library of a process from its thread's maps:
// those of a leader that ended are empty.
func librariesOf(pid, thread uint32) ([]Mapping, error) {
	return readMaps(pid, thread, func(line string) bool { return Of(line) != "" })
}

func readMaps(pid, thread uint32, wanted func(line string) bool) ([]Mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/maps", pid, thread))
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	return parseMaps(string(b), pid, wanted), nil
}

// parseMaps parses the wanted lines "start-end rights offset major:minor inode path". It leaves out lines that it
// cannot parse.
func parseMaps(maps string, pid uint32, wanted func(line string) bool) []Mapping {
	var list []Mapping
	for line := range strings.Lines(maps) {
		if !wanted(line) {
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

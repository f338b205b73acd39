package library

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// Area is the address range of a mapping.
type Area struct{ Start, End uint64 }

func (a Area) contains(address uint64) bool { return address >= a.Start && address < a.End }

// region is one line of /proc/PID/maps.
type region struct {
	Area
	offset     uint64 // in the file
	executable bool
	inode      Inode
	path       string // "" for anonymous memory
}

// driver reports whether the region maps a driver library.
func (r *region) driver() bool { return strings.HasPrefix(filepath.Base(r.path), "libcuda.so") }

// regionsOf reads the mappings of a process.
func regionsOf(pid uint32) ([]region, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	return parseMaps(b), nil
}

// parseMaps parses lines "start-end perms offset major:minor inode path". It leaves out lines that it cannot parse.
func parseMaps(maps []byte) []region {
	var list []region
	for line := range strings.Lines(string(maps)) {
		if r, ok := parseRegion(strings.TrimSuffix(line, "\n")); ok {
			list = append(list, r)
		}
	}
	return list
}

func parseRegion(line string) (r region, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || len(fields[1]) < 3 {
		return r, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	var err1, err2, err3 error
	r.Start, err1 = strconv.ParseUint(from, 16, 64)
	r.End, err2 = strconv.ParseUint(to, 16, 64)
	r.offset, err3 = strconv.ParseUint(fields[2], 16, 64)
	r.executable = fields[1][2] == 'x'
	r.inode, ok = parseInode(fields[3], fields[4])
	if i := strings.IndexByte(line, '/'); i >= 0 {
		r.path = line[i:]
	}
	return r, ok && err1 == nil && err2 == nil && err3 == nil
}

func parseInode(device, number string) (Inode, bool) {
	major, minor, ok := strings.Cut(device, ":")
	ma, err1 := strconv.ParseUint(major, 16, 32)
	mi, err2 := strconv.ParseUint(minor, 16, 32)
	ino, err3 := strconv.ParseUint(number, 10, 64)
	return Inode{Dev: unix.Mkdev(uint32(ma), uint32(mi)), Ino: ino}, ok && err1 == nil && err2 == nil && err3 == nil
}

package producer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileIdentity tells library files apart as uprobes do, which know the file under an overlay. An overlay
// shows that file's number, size and times, under a device of its own.
type fileIdentity struct {
	inode
	overlay bool
	size    int64
	changed syscall.Timespec
}

func (a fileIdentity) same(b fileIdentity) bool {
	if a.inode == b.inode {
		return true
	}
	return (a.overlay || b.overlay) && a.ino == b.ino && a.size == b.size && a.changed == b.changed
}

// identify says which file is open.
func identify(f *os.File) (fileIdentity, error) {
	var st syscall.Stat_t
	var on unix.Statfs_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return fileIdentity{}, fmt.Errorf("stat: %w", err)
	}
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil {
		return fileIdentity{}, fmt.Errorf("stat file system: %w", err)
	}
	return fileIdentity{
		inode: inode{dev: st.Dev, ino: st.Ino}, overlay: on.Type == unix.OVERLAYFS_SUPER_MAGIC, size: st.Size, changed: st.Ctim,
	}, nil
}

// inodeAsMapped is what maps and side-band records write for an open file: on overlayfs and btrfs the
// device is another than stat says. It maps the file and looks.
func inodeAsMapped(f *os.File) (inode, error) {
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return inode{}, fmt.Errorf("map: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return inode{}, err
	}
	_, line, ok := bytes.Cut(append([]byte{'\n'}, maps...), fmt.Appendf(nil, "\n%x-", uintptr(unsafe.Pointer(&page[0]))))
	if !ok {
		return inode{}, errors.New("not in /proc/self/maps")
	}
	fields := bytes.Fields(line[:bytes.IndexByte(line, '\n')])
	if id, ok := parseInode(string(fields[3]), string(fields[4])); ok {
		return id, nil
	}
	return inode{}, errors.New("no inode in /proc/self/maps")
}

// errGone says that no process has the file mapped any more.
var errGone = errors.New("no longer mapped")

// openMapped opens the very file that a process has mapped, in whatever mount namespace or root, and
// deleted or not: by its addresses, which needs CAP_CHECKPOINT_RESTORE, else by its path in the
// process's root, checked to be that file.
func openMapped(m mapped) (*os.File, error) {
	file, refused := os.Open(m.area.in(m.pid))
	if refused == nil {
		return file, nil
	}
	var maps bytes.Buffer
	_ = readInto(&maps, fmt.Sprintf("/proc/%d/maps", m.pid))
	gone := true
	for _, now := range librariesIn(&maps, m.pid) {
		if now.inode != m.inode {
			continue
		}
		gone = false
		if file, refused = os.Open(now.area.in(m.pid)); refused == nil {
			return file, nil
		}
	}
	if gone {
		return nil, errGone
	}
	file, err := os.Open(m.open())
	if err != nil {
		if errors.Is(refused, fs.ErrPermission) {
			err = fmt.Errorf("%w (a deleted library is opened with CAP_CHECKPOINT_RESTORE)", err)
		}
		return nil, err
	}
	if id, err := inodeAsMapped(file); err != nil || id != m.inode {
		file.Close()
		return nil, fmt.Errorf("open %s: it is not the mapped file: %w", m.path, errors.Join(refused, err))
	}
	return file, nil
}

// area is a mapping's addresses.
type area struct{ start, end uint64 }

// in is the link to the mapped file.
func (a area) in(pid int) string { return fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, a.start, a.end) }

package library

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File identifies a library file as uprobes do, which act on the file below an overlay. An overlay shows the number,
// size and times of that file, with a device of its own.
type File struct {
	Inode
	Changed syscall.Timespec
	overlay bool
	size    int64
}

// Same reports whether two files are one to uprobes.
func (a File) Same(b File) bool {
	if a.Inode == b.Inode {
		return true
	}
	return (a.overlay || b.overlay) && a.Ino == b.Ino && a.size == b.size && a.Changed == b.Changed
}

// Identify returns which file is open.
func Identify(f *os.File) (File, error) {
	var st syscall.Stat_t
	var fileSystem unix.Statfs_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return File{}, fmt.Errorf("stat: %w", err)
	}
	if err := unix.Fstatfs(int(f.Fd()), &fileSystem); err != nil {
		return File{}, fmt.Errorf("stat file system: %w", err)
	}
	return File{
		Inode: Inode{Dev: st.Dev, Ino: st.Ino}, overlay: fileSystem.Type == unix.OVERLAYFS_SUPER_MAGIC, size: st.Size,
		Changed: st.Ctim,
	}, nil
}

// InodeAsMapped returns the inode that maps and side-band records show for an open file. On overlayfs and btrfs its
// device differs from that of stat, so InodeAsMapped maps the file and reads the result.
func InodeAsMapped(f *os.File) (Inode, error) {
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return Inode{}, fmt.Errorf("map: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	mappings, err := mappingsOf(uint32(os.Getpid()))
	if err != nil {
		return Inode{}, err
	}
	address := uint64(uintptr(unsafe.Pointer(&page[0])))
	i := slices.IndexFunc(mappings, func(m Mapping) bool { return m.contains(address) })
	if i < 0 {
		return Inode{}, errors.New("its mapping is not in /proc/self/maps")
	}
	return mappings[i].Inode, nil
}

// ErrUnmapped says that the process no longer has the file mapped.
var ErrUnmapped = errors.New("no longer mapped")

// Open opens the very file that a process has mapped, in any mount namespace or root directory, deleted or not. It
// opens by address, which needs CAP_CHECKPOINT_RESTORE; else by path in the process's root, and checks the inode.
func (m Mapping) Open() (*os.File, error) {
	file, refused := os.Open(m.link())
	if refused == nil {
		return file, nil
	}
	mapped, _ := librariesOf(m.PID, m.PID)
	mapped = slices.DeleteFunc(mapped, func(now Mapping) bool { return now.Inode != m.Inode })
	if len(mapped) == 0 {
		return nil, ErrUnmapped
	}
	if file, refused = os.Open(mapped[0].link()); refused == nil {
		return file, nil
	}
	file, err := os.Open(m.pathFromHere())
	if err != nil {
		if errors.Is(refused, fs.ErrPermission) {
			err = fmt.Errorf("%w (opening a deleted library needs CAP_CHECKPOINT_RESTORE)", err)
		}
		return nil, err
	}
	if id, err := InodeAsMapped(file); err != nil || id != m.Inode {
		file.Close()
		return nil, fmt.Errorf("open %s: it is not the mapped file: %w", m.Path, errors.Join(refused, err))
	}
	return file, nil
}

// link is the name in /proc of the file behind the mapping.
func (m Mapping) link() string { return fmt.Sprintf("/proc/%d/map_files/%x-%x", m.PID, m.Start, m.End) }

// pathFromHere leads to the file through the process's own root directory.
func (m Mapping) pathFromHere() string { return fmt.Sprintf("/proc/%d/root%s", m.PID, m.Path) }

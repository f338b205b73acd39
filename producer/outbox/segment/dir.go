package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const stateName = "state"

// Dir is a directory that this process locks.
type Dir struct {
	root *os.Root
	self *os.File
}

// OpenDir creates a directory if need be and locks it. It refuses one that others may write to.
func OpenDir(path string) (d *Dir, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create: %w; see producer.outbox", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open: %w; see producer.outbox", err)
	}
	self, err := root.Open(".")
	if err == nil {
		err = lock(self)
	}
	if err != nil {
		self.Close()
		root.Close()
		return nil, err
	}
	return &Dir{root, self}, nil
}

func lock(self *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(self.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&0o022 != 0 || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return errors.New("others may write there, and its batches are sent as this host's: chmod 700 it")
	}
	err := unix.Flock(int(self.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("in use by another producer: give each producer its own producer.outbox")
	}
	return err
}

// Close unlocks the directory.
func (d *Dir) Close() {
	_ = unix.Flock(int(d.self.Fd()), unix.LOCK_UN) // a child that is being started has a copy of self until its exec
	d.root.Close()
	d.self.Close()
}

// Create makes a file whose name survives a power cut.
func (d *Dir) Create(name string) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, d.self.Sync()
}

// Open opens a file for reading.
func (d *Dir) Open(name string) (*os.File, error) {
	return d.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
}

// Remove deletes a file, if it is there.
func (d *Dir) Remove(name string) error {
	if err := d.root.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ReadState decodes the state file, if there is one. After ErrCorrupt it cannot be trusted.
func (d *Dir) ReadState(into any) error {
	f, err := d.Open(stateName)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, text, err := Read(f, 0, nil)
	if err == nil && json.Unmarshal(text, into) != nil {
		err = ErrCorrupt
	}
	return err
}

// WriteState replaces the state file. It fails if the disk has no room for so many bytes more. With sync the state
// survives a power cut.
func (d *Dir) WriteState(state any, room int64, sync bool) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	f, err := d.root.OpenFile(stateName+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if room > 0 {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, room); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			_ = f.Truncate(0)
			return fmt.Errorf("reserve room: %w", err)
		}
	}
	record := Encode(nil, Head{}, text)
	_, err = f.Write(record)
	if err == nil && room > 0 {
		err = f.Truncate(int64(len(record)))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil {
		err = d.root.Rename(stateName+".new", stateName)
	}
	if err == nil && sync {
		err = d.self.Sync()
	}
	return err
}

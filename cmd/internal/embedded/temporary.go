package embedded

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/config"
)

const (
	lockName = "gputap.lock"
	// markerName is the name of a file that marks a store as temporary: once its owner is gone, it may be removed.
	markerName      = "temporary"
	temporaryPrefix = "gputap-"
)

// StartTemporary starts a server on a new store in parent, which Stop removes. StartTemporary and Stop also remove the
// temporary stores in parent whose owners were killed.
func StartTemporary(parent string, c config.Embedded, log *slog.Logger) (*Server, error) {
	removeOrphans(parent, log)
	dir, err := os.MkdirTemp(parent, temporaryPrefix)
	if err != nil {
		return nil, fmt.Errorf("create a directory for the streams: %w", err)
	}
	lock, err := lockStore(dir)
	if err == nil {
		// The marker follows the lock, so that no other run removes the store in between.
		if err = os.WriteFile(filepath.Join(dir, markerName), nil, 0o600); err == nil {
			return start(&Server{lock: lock, log: log, temporary: dir}, dir, c)
		}
		_ = lock.Close()
	}
	_ = os.RemoveAll(dir)
	return nil, fmt.Errorf("create a temporary store: %w", err)
}

// removeOrphans removes the temporary stores of this user whose locks are free.
func removeOrphans(parent string, log *slog.Logger) {
	stores, _ := filepath.Glob(filepath.Join(parent, temporaryPrefix+"*"))
	for _, dir := range stores {
		if !isOwnTemporary(dir) {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		// The marker is read again under the lock, because gputap run --store may have made the store a lasting one.
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && isOwnTemporary(dir) {
			if err := os.RemoveAll(dir); err != nil {
				log.Warn("cannot remove the temporary store of a killed run", "dir", dir, "err", err)
			} else {
				log.Info("removed the temporary store of a killed run", "dir", dir)
			}
		}
		_ = lock.Close()
	}
}

// isOwnTemporary reports whether dir is a directory of this user with a marker. Other users may write to the directory
// that has the stores, so links do not count.
func isOwnTemporary(dir string) bool {
	return isOwn(dir, fs.ModeDir) && isOwn(filepath.Join(dir, markerName), 0)
}

func isOwn(path string, kind fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != kind {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}

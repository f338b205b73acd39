package local

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNone means that no gputap run listens on this host.
var ErrNone = errors.New("no gputap run on this host")

// dialTime is how long a connection to a socket may take. A live process accepts at once.
const dialTime = time.Second

// socket is the socket of one process.
type socket struct {
	path  string
	pid   int
	since time.Time
}

// Find returns the path of the socket of a gputap run: the one with that PID, or with PID 0 the newest. The error of a
// socket that this user may not open wraps os.ErrPermission.
func Find(pid int) (path string, err error) {
	dirs := []string{Dir(), rootDir}
	slices.Sort(dirs)
	return find(slices.Compact(dirs), pid)
}

func find(dirs []string, pid int) (path string, err error) {
	var all []socket
	for _, dir := range dirs {
		all = append(all, socketsIn(dir)...)
	}
	slices.SortFunc(all, func(a, b socket) int { return cmp.Or(b.since.Compare(a.since), cmp.Compare(b.pid, a.pid)) })
	err = ErrNone
	for _, s := range all {
		if pid != 0 && s.pid != pid {
			continue
		}
		switch cause := s.probe(); {
		case cause == nil:
			return s.path, nil
		case errors.Is(cause, os.ErrPermission):
			err = fmt.Errorf("ask gputap run with PID %d: %w; be its user, or root", s.pid, cause)
		}
	}
	if pid != 0 && errors.Is(err, ErrNone) {
		return "", fmt.Errorf("%w with PID %d", ErrNone, pid)
	}
	return "", err
}

func socketsIn(dir string) (list []socket) {
	paths, _ := filepath.Glob(filepath.Join(dir, prefix+"*"+suffix)) // the pattern is valid
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), prefix), suffix)
		pid, err := strconv.Atoi(name)
		info, statErr := os.Lstat(path)
		if err == nil && statErr == nil && info.Mode().Type() == os.ModeSocket {
			list = append(list, socket{path, pid, info.ModTime()})
		}
	}
	return list
}

// probe connects and disconnects. The error is ECONNREFUSED if nobody listens.
func (s socket) probe() error {
	c, err := net.DialTimeout("unix", s.path, dialTime)
	if err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) {
			return errno
		}
		return err
	}
	return c.Close()
}

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

// Run is a gputap run of this host.
type Run struct {
	Path   string // of its socket
	PID    int
	Others []int // PIDs of the older runs that this user may ask, newest first; nil if a PID was asked for
}

// Find returns the gputap run with that PID, or with PID 0 the newest. The error of a socket that this user may not
// open wraps os.ErrPermission.
func Find(pid int) (Run, error) {
	dirs := []string{Dir(), rootDir}
	slices.Sort(dirs)
	return find(slices.Compact(dirs), pid)
}

func find(dirs []string, pid int) (found Run, err error) {
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
		case cause == nil && pid != 0:
			return Run{Path: s.path, PID: s.pid}, nil
		case cause == nil && found.Path == "":
			found = Run{Path: s.path, PID: s.pid}
		case cause == nil:
			found.Others = append(found.Others, s.pid)
		case errors.Is(cause, os.ErrPermission):
			err = fmt.Errorf("ask gputap run with PID %d: %w; be its user, or root", s.pid, cause)
		}
	}
	switch {
	case found.Path != "":
		return found, nil
	case pid != 0 && errors.Is(err, ErrNone):
		return Run{}, fmt.Errorf("%w with PID %d", ErrNone, pid)
	}
	return Run{}, err
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

package local

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	maxConnections = 32
	prefix, suffix = "run-", ".sock"
)

// Listener pipes each accepted connection into a connection to a server of this process.
type Listener struct {
	open     func() (net.Conn, error)
	log      *slog.Logger
	listener *net.UnixListener
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // both ends of each pipe
	closed bool
}

// Listen makes the socket of this process. open connects to the server.
func Listen(open func() (net.Conn, error), log *slog.Logger) (*Listener, error) {
	dir := Dir()
	if dir == "" {
		return nil, errors.New("make the socket for gputap get: XDG_RUNTIME_DIR is not set; set it to a directory of " +
			"this user")
	}
	return listen(dir, os.Getpid(), open, log)
}

// Dir returns the directory of the sockets of this user; "" if XDG_RUNTIME_DIR is not set.
func Dir() string {
	if os.Geteuid() == 0 {
		return rootDir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "gputap")
	}
	return ""
}

const rootDir = "/run/gputap"

func listen(dir string, pid int, open func() (net.Conn, error), log *slog.Logger) (*Listener, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the socket: %w", err)
	}
	removeStale(dir)
	path := filepath.Join(dir, prefix+strconv.Itoa(pid)+suffix)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("make the socket %s: %w", path, err)
	}
	l := &Listener{open: open, log: log, listener: listener, conns: map[net.Conn]bool{}}
	l.running.Go(l.accept)
	return l, nil
}

// removeStale removes the sockets that nobody listens on.
func removeStale(dir string) {
	for _, s := range socketsIn(dir) {
		if err := s.probe(); errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(s.path)
		}
	}
}

// Path returns the path of the socket.
func (l *Listener) Path() string { return l.listener.Addr().String() }

// Close removes the socket, ends all connections and waits for them.
func (l *Listener) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}

func (l *Listener) accept() {
	for {
		c, err := l.listener.AcceptUnix()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.serve(c) })
	}
}

// serve pipes one connection until either end closes.
func (l *Listener) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	if uid, err := peer(c); err != nil || !admits(uid, os.Geteuid()) {
		l.log.Warn("connection to the socket refused: another user", "uid", uid, "err", err)
		return
	}
	server, err := l.open()
	if err != nil {
		l.log.Debug("cannot connect to the embedded NATS server", "err", err)
		return
	}
	defer func() { _ = server.Close() }()
	if !l.add(c, server) {
		return
	}
	defer l.remove(c, server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, c)
		_ = server.Close()
	}()
	_, _ = io.Copy(c, server)
	_ = c.Close()
	<-done
}

// admits reports whether a user may ask a process of an owner.
func admits(uid, owner int) bool { return uid == 0 || uid == owner }

// peer returns the user at the other end.
func peer(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("read the peer of the socket: %w", err)
	}
	var credential *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		credential, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(controlErr, err); err != nil {
		return -1, fmt.Errorf("read the peer of the socket: %w", err)
	}
	return int(credential.Uid), nil
}

func (l *Listener) add(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.conns) >= 2*maxConnections {
		return false
	}
	for _, c := range ends {
		l.conns[c] = true
	}
	return true
}

func (l *Listener) remove(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range ends {
		delete(l.conns, c)
	}
}

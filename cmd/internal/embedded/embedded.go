package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

const (
	storeBytes  = 2 << 30
	memoryBytes = 64 << 20
	syncEvery   = 10 * time.Second
	startTime   = 30 * time.Second
)

// Server is a running server and the lock on its store.
type Server struct {
	server *server.Server
	lock   *os.File
}

// Start starts a server on a store directory, which it locks: two servers on one store would ruin it.
func Start(dir string, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the store %s: %w", dir, err)
	}
	lock, err := lockStore(dir)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "gputap", DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, DisableJetStreamBanner: true,
		JetStreamMaxStore: storeBytes, JetStreamMaxMemory: memoryBytes, SyncInterval: syncEvery,
	})
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("configure the embedded bus: %w", err)
	}
	notes := &logger{log: log}
	s.SetLoggerV2(notes, false, false, false)
	go s.Start()
	if !s.ReadyForConnections(startTime) {
		s.Shutdown()
		_ = lock.Close()
		return nil, fmt.Errorf("start the embedded bus on %s: %w", dir, notes.failure())
	}
	return &Server{server: s, lock: lock}, nil
}

func lockStore(dir string) (*os.File, error) {
	path := filepath.Join(dir, "gputap.lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the store: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("the store %s is in use by another gputap: end it, or choose another directory", dir)
	}
	return lock, nil
}

// Connect gives a connection through the pipe.
func (s *Server) Connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect("", nats.InProcessServer(s.server), nats.Name(name), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the embedded bus: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}

// Stop ends the server and gives the store free.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	_ = s.lock.Close()
}

// logger passes the server's word on. Without one its fatal errors are silent; the stock one ends
// the program.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal error
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(string, ...any)           {}
func (l *logger) Tracef(string, ...any)           {}

func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal = fmt.Errorf(format, v...)
}

func (l *logger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal != nil {
		return l.fatal
	}
	return errors.New("it was not ready in time")
}

package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/config"
)

const (
	memoryBytes = 64 << 20
	syncEvery   = 10 * time.Second
	startTime   = 30 * time.Second // reading a large store takes time
	startStep   = 100 * time.Millisecond
)

// Server is a running server and the lock on its store.
type Server struct {
	server    *server.Server
	lock      *os.File
	temporary string // directory that Stop removes, or ""
	log       *slog.Logger
	readers   *readers // nil until the options are valid
}

// Start starts a server on a store directory, which listens if c has an address. It locks the directory, because a
// second server would corrupt the store.
func Start(dir string, c config.Embedded, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the store directory %s: %w", dir, err)
	}
	lock, err := lockStore(dir)
	if err != nil {
		return nil, err
	}
	// A store that the caller names is not removed, even if a killed run created it.
	if err := os.Remove(filepath.Join(dir, markerName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = lock.Close()
		return nil, fmt.Errorf("open the store %s: %w", dir, err)
	}
	return start(&Server{lock: lock, log: log}, dir, c)
}

// start starts a server on a locked store.
func start(s *Server, dir string, c config.Embedded) (_ *Server, err error) {
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	options := &server.Options{
		ServerName: "gputap", DontListen: true, NoSigs: true,
		JetStream: true, DisableJetStreamBanner: true, StoreDir: dir, SyncInterval: syncEvery,
		JetStreamMaxStore:  int64(cmp.Or(c.StoreMaxBytes, config.DefaultStoreMaxBytes)),
		JetStreamMaxMemory: memoryBytes,
	}
	if s.readers, err = listen(options, c); err != nil {
		return nil, err
	}
	if s.server, err = server.NewServer(options); err != nil {
		return nil, fmt.Errorf("configure the embedded NATS server: %w", err)
	}
	serverLog := &logger{log: s.log, fatal: make(chan error, 1)}
	s.server.SetLoggerV2(serverLog, false, false, false)
	if err := s.await(serverLog.fatal); err != nil {
		return nil, fmt.Errorf("start the embedded NATS server on %s: %w", dir, err)
	}
	if err := s.readers.admit(s.server); err != nil {
		return nil, err
	}
	if c.Listen != "" {
		if err := s.readers.publish(dir, s.server.ClientURL(), c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// await starts the server and returns when it is ready, or with its first fatal error.
func (s *Server) await(fatal <-chan error) error {
	go s.server.Start()
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); {
		ready := s.server.ReadyForConnections(startStep)
		select {
		case err := <-fatal:
			return err
		default:
		}
		if ready {
			return nil
		}
	}
	return fmt.Errorf("not ready within %s", startTime)
}

func lockStore(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the store %s: %w", dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock the store %s: another gputap uses it; stop that one, or choose another directory",
			dir)
	}
	return lock, nil
}

// Connect returns a connection through the pipe.
func (s *Server) Connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect("", nats.InProcessServer(s.server), nats.Name(name), nats.ReconnectBufSize(-1),
		nats.UserInfo(insider, s.readers.inside))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the embedded NATS server: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}

// Pipe returns a connection to the server. A program at its other end connects as Viewer: it may ask questions, and
// read events and alerts.
func (s *Server) Pipe() (net.Conn, error) {
	c, err := s.server.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded NATS server: %w", err)
	}
	return c, nil
}

// Stop ends the server, removes a temporary store and unlocks the store.
func (s *Server) Stop() {
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	if s.readers != nil {
		s.readers.withdraw()
	}
	if s.temporary != "" {
		_ = os.RemoveAll(s.temporary)
		// A killed run holds its lock until Linux has detached its probes: the first sweep may have been too early.
		removeOrphans(filepath.Dir(s.temporary), s.log)
	}
	_ = s.lock.Close()
}

// logger forwards the server's log. Without a logger fatal errors would be silent, and the default logger would end the
// program.
type logger struct {
	log   *slog.Logger
	fatal chan error // receives the first fatal error
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(string, ...any)           {}
func (l *logger) Tracef(string, ...any)           {}

func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Errorf(format, v...):
	default:
	}
}

package replay

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/local"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
)

// server is an embedded NATS server that answers commands of this host, as that of gputap run does. It stores the
// alerts of the folds.
type server struct {
	log    *slog.Logger
	server *embedded.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	alerts map[string]*fold.Alerts
	socket *local.Listener // nil before answer

	ctx     context.Context // of the alerts and the answers
	cancel  context.CancelFunc
	running sync.WaitGroup
}

const (
	storeAge   = 24 * time.Hour
	storeBytes = 64 << 20 // for the alerts: the events are not stored
)

func startServer(ctx context.Context, shards int, log *slog.Logger) (s *server, err error) {
	s = &server{log: log, alerts: map[string]*fold.Alerts{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.server, err = embedded.StartTemporary(os.TempDir(), config.Embedded{}, log); err != nil {
		return s, err
	}
	if s.nc, s.js, err = s.server.Connect("gputap"); err != nil {
		return s, err
	}
	err = bus.EnsureStreams(ctx, s.js, bus.StreamOptions{Shards: shards, MaxAge: storeAge, MaxBytes: storeBytes})
	if err != nil {
		return s, fmt.Errorf("create the streams of this replay: %w", err)
	}
	return s, nil
}

// raise returns what stores the alerts of a fold.
func (s *server) raise(name string) func(alert.Alert) {
	if s.alerts[name] == nil {
		s.alerts[name] = fold.NewAlerts(s.js, name, s.log)
	}
	alerts := s.alerts[name]
	return func(a alert.Alert) { alerts.Publish(s.ctx, a) }
}

// answer answers questions about the folds. Without a socket the replay works all the same.
func (s *server) answer(sets []*fold.Set) {
	for _, service := range fold.Services(sets, s.nc, s.log) {
		s.running.Go(func() { service.Run(s.ctx) })
	}
	socket, err := local.Listen(s.server.Pipe, s.log)
	if err != nil {
		s.log.Warn("commands of this host cannot ask this replay", "err", err)
		return
	}
	s.socket = socket
}

func (s *server) stop() {
	if s.socket != nil {
		s.socket.Close()
	}
	s.cancel()
	if s.nc != nil {
		s.nc.Close() // ends requests, which would otherwise wait for their timeout
	}
	s.running.Wait()
	if s.server != nil {
		s.server.Stop()
	}
}

package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/local"
	"github.com/gputap/gputap/config"
)

const (
	connectTime = 5 * time.Second
	urlFlag     = "nats.url"
	urlVariable = "GPUTAP_NATS__URL"
)

// connect connects to the bus that a flag or variable names. If none does, it connects to a gputap run of this host.
func (q *question) connect(ctx context.Context) (*nats.Conn, error) {
	if !q.cmd.PersistentFlags().Changed(urlFlag) && os.Getenv(urlVariable) == "" {
		if err := config.CheckVariables(); err != nil {
			return nil, app.Usage(err)
		}
		return connectLocal(q.pid)
	}
	if q.pid != 0 {
		return nil, app.Usage(errors.New("--pid and --nats.url: set only one"))
	}
	cfg, err := q.readBus()
	if err != nil {
		return nil, app.Usage(err)
	}
	nc, _, err := q.p.Connect(cfg)
	if err != nil {
		return nil, err
	}
	if err := q.p.Reach(ctx, cfg, nc, connectTime); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// connectLocal connects through the socket of a gputap run. It does not reconnect.
func connectLocal(pid int) (*nats.Conn, error) {
	path, err := local.Find(pid)
	if errors.Is(err, local.ErrNone) {
		return nil, app.Unreachable(fmt.Errorf("find consumers to ask: %w; start gputap run, or name the bus of a "+
			"fleet with --nats.url nats://host:4222", err))
	}
	if err != nil {
		return nil, app.Privilege(err)
	}
	nc, err := nats.Connect(nats.DefaultURL, nats.SetCustomDialer(unixDialer(path)), nats.UserInfo(embedded.Viewer, ""),
		nats.NoReconnect(), nats.Name("gputap"))
	if err != nil {
		return nil, app.Unreachable(fmt.Errorf("connect to gputap run at %s: %w", path, err))
	}
	return nc, nil
}

// unixDialer dials the socket at a path, whatever the address.
type unixDialer string

func (d unixDialer) Dial(string, string) (net.Conn, error) { return net.Dial("unix", string(d)) }

// SkipTLSHandshake: the bytes stay on this host.
func (d unixDialer) SkipTLSHandshake() bool { return true }

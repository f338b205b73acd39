package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/local"
	"github.com/gputap/gputap/config"
)

const (
	connectTime = 5 * time.Second // if --timeout is longer
	urlFlag     = "nats.url"
	urlVariable = "GPUTAP_NATS__URL"
)

// connect connects to the bus that a flag or variable names. If none does, it connects to a gputap run of this host.
func (q *question) connect(ctx context.Context) (*nats.Conn, error) {
	if !q.cmd.PersistentFlags().Changed(urlFlag) && os.Getenv(urlVariable) == "" {
		if err := config.CheckVariables(); err != nil {
			return nil, app.Usage(err)
		}
		return q.connectLocal()
	}
	if q.pid != 0 {
		return nil, app.Usage(errors.New("--pid and --nats.url: set only one"))
	}
	cfg, err := q.readBus()
	if err != nil {
		return nil, app.Usage(err)
	}
	all, each := connectTimes(q.timeout, 1+strings.Count(cfg.URL, ","))
	nc, _, err := q.p.Dial(ctx, cfg, all, nats.Timeout(each)) // tries each server once
	return nc, err
}

// connectTimes returns how long it may take to connect, and how long one of the servers may take.
func connectTimes(timeout time.Duration, servers int) (all, each time.Duration) {
	all = min(timeout, connectTime)
	return all, min(all/time.Duration(servers), nats.DefaultTimeout)
}

// connectLocal connects through the socket of a gputap run. It does not reconnect.
func (q *question) connectLocal() (*nats.Conn, error) {
	run, err := local.Find(q.pid)
	if errors.Is(err, local.ErrNone) {
		return nil, app.Unreachable(fmt.Errorf("find consumers to ask: %w; start gputap run, or name the bus of a "+
			"fleet with --nats.url nats://host:4222", err))
	}
	if err != nil {
		return nil, app.Privilege(err)
	}
	q.tellOthers(&run)
	_, each := connectTimes(q.timeout, 1)
	nc, err := nats.Connect(nats.DefaultURL, nats.Timeout(each), nats.SetCustomDialer(unixDialer(run.Path)),
		nats.UserInfo(embedded.Viewer, ""), nats.NoReconnect(), nats.Name("gputap"))
	if err != nil {
		return nil, app.Unreachable(fmt.Errorf("connect to gputap run at %s: %w", run.Path, err))
	}
	return nc, nil
}

// tellOthers says once that several runs could answer.
func (q *question) tellOthers(run *local.Run) {
	if len(run.Others) == 0 || q.told {
		return
	}
	q.told = true
	fmt.Fprintf(q.p.Stderr, "%d runs of gputap on this host; PID %d answers, as the newest; --pid asks another: %s\n",
		1+len(run.Others), run.PID, strings.Trim(strings.ReplaceAll(fmt.Sprint(run.Others), " ", ", "), "[]"))
}

// unixDialer dials the socket at a path, whatever the address.
type unixDialer string

func (d unixDialer) Dial(string, string) (net.Conn, error) { return net.Dial("unix", string(d)) }

// SkipTLSHandshake: the bytes stay on this host.
func (d unixDialer) SkipTLSHandshake() bool { return true }

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
)

const (
	clusterName  = "outage"
	hostName     = "guest"
	startupLimit = time.Minute // for a server or a consumer
	streamBytes  = 4 << 30
)

// fleet is what runs outside the guest: nats-server and gputap-leak.
type fleet struct {
	*cluster.Workspace
	nats *cluster.Node
	leak *cluster.Process
	page string // URL of gputap-leak's HTTP server
	nc   *nats.Conn
	js   jetstream.JetStream
}

// newFleet builds the programs and starts the fleet. Close it also after an error.
func newFleet(ctx context.Context, w *cluster.Workspace) (*fleet, error) {
	f := &fleet{Workspace: w}
	if err := cluster.Build(ctx, ".", f.Bin, "github.com/nats-io/nats-server/v2", "./cmd/gputap", "./cmd/gputap-leak",
		"./cmd/gputap-producer"); err != nil {
		return f, err
	}
	nodes, err := cluster.Nodes(f.Dir, f.Program("nats-server"), 1, "8GB")
	if err != nil {
		return f, err
	}
	f.nats = nodes[0]
	if err := f.nats.Start(); err != nil {
		return f, err
	}
	if f.nc, f.js, err = cluster.Connect(ctx, cluster.URLs(nodes)); err != nil {
		return f, err
	}
	if err := cluster.InitStreams(ctx, f.Program("gputap"), cluster.URLs(nodes), 1, 1, streamBytes); err != nil {
		return f, err
	}
	return f, f.startLeak(ctx)
}

// guestURL is how the guest reaches nats-server: qemu's user network maps 10.0.2.2 to this machine.
func (f *fleet) guestURL() string {
	return "nats://" + strings.Replace(f.nats.Addr, "127.0.0.1", "10.0.2.2", 1)
}

func (f *fleet) startLeak(ctx context.Context) error {
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	f.page = "http://" + addr
	f.leak = &cluster.Process{Name: "gputap-leak", Dir: f.Dir, Args: []string{
		f.Program("gputap-leak"), "--nats.url", "nats://" + f.nats.Addr, "--metrics.addr", addr,
		"--display-interval", "0",
		"--log.format", "text", "--consumer.checkpoint", "5s",
	}}
	if err := f.leak.Start(); err != nil {
		return err
	}
	return cluster.Until(ctx, startupLimit, func() error {
		_, err := scrape.Body(f.page + "/readyz")
		return err
	})
}

func (f *fleet) close() {
	if f.nc != nil {
		f.nc.Close()
	}
	if f.leak != nil {
		f.leak.Kill()
	}
	if f.nats != nil {
		f.nats.Kill()
	}
}

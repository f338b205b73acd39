package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Node is one nats-server, alone or of a cluster.
type Node struct {
	Process
	Addr    string // for clients
	Monitor string // URL of its HTTP monitoring
	Store   string // directory, which exists
}

// URLs returns what clients connect to.
func URLs(nodes []*Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, "nats://"+n.Addr)
	}
	return strings.Join(list, ",")
}

// Nodes writes the configuration of each node and starts none. One node is no cluster. maxFile limits the store of each
// node and is written as nats-server reads it, for example 8GB.
func (w *Workspace) Nodes(count int, maxFile string) ([]*Node, error) {
	addrs, err := FreeAddrs(3 * count)
	if err != nil {
		return nil, err
	}
	clients, monitors, routes := addrs[:count], addrs[count:2*count], addrs[2*count:]
	var nodes []*Node
	for i := range count {
		n := &Node{
			Process: Process{Name: fmt.Sprintf("nats-%d", i)},
			Addr:    clients[i],
			Monitor: "http://" + monitors[i],
			Store:   w.Path(fmt.Sprintf("store-%d", i)),
		}
		conf := w.Path(fmt.Sprintf("node-%d.conf", i))
		n.Args = []string{w.Program("nats-server"), "-c", conf}
		text := fmt.Sprintf(`server_name: n%d
listen: %q
http: %q
jetstream { store_dir: %q, max_file_store: %s, max_memory_store: 256MB, sync_interval: 10s }
`, i, n.Addr, monitors[i], n.Store, maxFile)
		if count > 1 {
			text += fmt.Sprintf("cluster { name: gputap, listen: %q, no_advertise: true, routes: [nats://%s] }\n",
				routes[i], strings.Join(routes, ", nats://"))
		}
		if err := errors.Join(os.MkdirAll(n.Store, 0o755), os.WriteFile(conf, []byte(text), 0o644)); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// StartNodes starts nodes and creates the streams, with a replica on each node.
func (w *Workspace) StartNodes(ctx context.Context, nodes []*Node, shards int, maxBytes int64) (
	jetstream.JetStream, error,
) {
	for _, n := range nodes {
		if err := w.Start(&n.Process); err != nil {
			return nil, err
		}
	}
	js, err := Connect(ctx, URLs(nodes))
	if err != nil {
		return nil, err
	}
	w.Cleanup(js.Conn().Close)
	return js, InitStreams(ctx, w.Program("gputap"), URLs(nodes), shards, len(nodes), maxBytes)
}

// FreeAddrs returns loopback addresses that nothing listens on. Their ports lie below Linux's ephemeral ports (32768
// and more): otherwise a node that tries to reach another node too early could get that node's port as its own source
// port.
func FreeAddrs(count int) (addrs []string, err error) {
	const first, past = 20_000, 32_000
	for tries := 0; len(addrs) < count; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(past-first)))
		if err != nil {
			if tries > past-first {
				return nil, fmt.Errorf("find %d free ports from %d to %d: %w", count, first, past, err)
			}
			continue
		}
		defer l.Close() // all of them at the end, so that no port is found twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// Connect waits up to a minute until JetStream answers at one of the URLs.
func Connect(ctx context.Context, urls string) (js jetstream.JetStream, err error) {
	err = Until(ctx, time.Minute, func() error {
		nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
		if err != nil {
			return err
		}
		if js, err = jetstream.New(nc); err == nil {
			_, err = js.AccountInfo(ctx)
		}
		if err != nil {
			nc.Close()
			return fmt.Errorf("JetStream: %w", err)
		}
		return nil
	})
	return js, err
}

// InitStreams runs `gputap stream init` with the given program until it succeeds: a new cluster needs a moment.
func InitStreams(ctx context.Context, gputap, urls string, shards, replicas int, maxBytes int64) error {
	return Until(ctx, time.Minute, func() error {
		out, err := exec.CommandContext(ctx, gputap, "stream", "init", "--nats.url", urls,
			"--shards", strconv.Itoa(shards), "--replicas", strconv.Itoa(replicas),
			"--max-bytes", strconv.FormatInt(maxBytes, 10)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("stream init: %w: %s", err, out)
		}
		return nil
	})
}

// Until calls try until it returns nil, at first often and later once a second. It returns the last error when the time
// is over.
func Until(ctx context.Context, within time.Duration, try func() error) error {
	pause := 50 * time.Millisecond
	for deadline := time.Now().Add(within); ; {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if stopped := Sleep(ctx, pause); stopped != nil {
			return errors.Join(stopped, err)
		}
		pause = min(2*pause, time.Second)
	}
}

// Sleep returns nil after d, or the cause of the context's end if that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

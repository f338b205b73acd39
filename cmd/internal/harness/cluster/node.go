package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// Nodes writes the configuration of each node into dir and starts none. One node is no cluster. maxFile limits the
// store of each node and is written as nats-server reads it, for example 8GB.
func Nodes(dir, program string, count int, maxFile string) ([]*Node, error) {
	ports, err := FreePorts(3 * count)
	if err != nil {
		return nil, err
	}
	var routes []string
	for i := range count {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[count+i]))
	}
	var nodes []*Node
	for i := range count {
		n := &Node{
			Process: Process{Name: fmt.Sprintf("nats-%d", i), Dir: dir},
			Addr:    fmt.Sprintf("127.0.0.1:%d", ports[i]),
			Monitor: fmt.Sprintf("http://127.0.0.1:%d", ports[2*count+i]),
			Store:   filepath.Join(dir, fmt.Sprintf("store-%d", i)),
		}
		conf := filepath.Join(dir, fmt.Sprintf("node-%d.conf", i))
		n.Args = []string{program, "-c", conf}
		text := fmt.Sprintf(`server_name: n%d
listen: %q
http: %q
jetstream { store_dir: %q, max_file_store: %s, max_memory_store: 256MB, sync_interval: 10s }
`, i, n.Addr, strings.TrimPrefix(n.Monitor, "http://"), n.Store, maxFile)
		if count > 1 {
			text += fmt.Sprintf("cluster { name: gputap, listen: 127.0.0.1:%d, no_advertise: true, routes: [%s] }\n",
				ports[count+i], strings.Join(routes, ", "))
		}
		if err := errors.Join(os.MkdirAll(n.Store, 0o755), os.WriteFile(conf, []byte(text), 0o644)); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// FreePorts returns loopback ports that nothing listens on. They lie below Linux's ephemeral ports (32768 and more):
// otherwise a node that tries to reach another node too early could get that node's port as its own source port.
func FreePorts(count int) (ports []int, err error) {
	const first, past = 20_000, 32_000
	for tries := 0; len(ports) < count; tries++ {
		port := first + rand.IntN(past-first)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			if tries > past-first {
				return nil, fmt.Errorf("find %d free ports from %d to %d: %w", count, first, past, err)
			}
			continue
		}
		defer l.Close() // all of them at the end, so that no port is found twice
		ports = append(ports, port)
	}
	return ports, nil
}

// Connect waits up to a minute until JetStream answers at one of the URLs.
func Connect(ctx context.Context, urls string) (nc *nats.Conn, js jetstream.JetStream, err error) {
	err = Until(ctx, time.Minute, func() error {
		if nc, err = nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond)); err != nil {
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
	return nc, js, err
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

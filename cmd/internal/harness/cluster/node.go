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

// Node is one nats-server of a cluster.
type Node struct {
	Process
	Addr    string // of its clients
	Monitor string // URL of its HTTP monitoring
	Store   string // directory, which is there
}

// Nodes writes what each node needs into dir; none is started. maxFile is what each may store, as nats-server writes it.
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
			Process: Process{Name: fmt.Sprintf("nats-%d", i), Dir: dir}, Addr: fmt.Sprintf("127.0.0.1:%d", ports[i]),
			Monitor: fmt.Sprintf("http://127.0.0.1:%d", ports[2*count+i]), Store: filepath.Join(dir, fmt.Sprintf("store-%d", i)),
		}
		conf := filepath.Join(dir, fmt.Sprintf("node-%d.conf", i))
		n.Args = []string{program, "-c", conf}
		text := fmt.Sprintf(`server_name: n%d
listen: %q
http: %q
jetstream { store_dir: %q, max_file_store: %s, max_memory_store: 256MB, sync_interval: 10s }
cluster { name: gputap, listen: "127.0.0.1:%d", no_advertise: true, routes: [%s] }
`, i, n.Addr, strings.TrimPrefix(n.Monitor, "http://"), n.Store, maxFile, ports[count+i], strings.Join(routes, ", "))
		if err := errors.Join(os.MkdirAll(n.Store, 0o755), os.WriteFile(conf, []byte(text), 0o644)); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// FreePorts are ports of loopback that nothing listened on a moment ago. They are not those that Linux gives to connections
// (32768 and more): a node that tries to reach another before that one listens would be given its port.
func FreePorts(count int) (ports []int, err error) {
	const first, past = 20_000, 32_000
	for tries := 0; len(ports) < count; tries++ {
		port := first + rand.IntN(past-first)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			if tries > past-first {
				return nil, fmt.Errorf("no %d free ports from %d on: %w", count, first, err)
			}
			continue
		}
		defer l.Close() // all at the end: none is found twice
		ports = append(ports, port)
	}
	return ports, nil
}

// Build builds programs of the tree into dir.
func Build(ctx context.Context, tree, dir string, packages ...string) error {
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)...)
	build.Dir, build.Stderr = tree, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// Connect waits for a JetStream that answers at one of the URLs.
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

// InitStreams has gputap, which is that program, set up the streams as soon as the cluster has room for them.
func InitStreams(ctx context.Context, gputap, urls string, shards, replicas int, maxBytes int64) error {
	return Until(ctx, time.Minute, func() error {
		out, err := exec.CommandContext(ctx, gputap, "stream", "init", "--nats.url", urls, "--shards", strconv.Itoa(shards),
			"--replicas", strconv.Itoa(replicas), "--max-bytes", strconv.FormatInt(maxBytes, 10)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("stream init: %w: %s", err, out)
		}
		return nil
	})
}

// Until tries once a second.
func Until(ctx context.Context, within time.Duration, try func() error) error {
	for deadline := time.Now().Add(within); ; {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

//go:build soak

package bus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// TestClusterReplicates: three servers hold three replicas; five are refused.
func TestClusterReplicates(t *testing.T) {
	js := cluster(t, freePorts(t, 3))
	bustest.Eventually(t, "the cluster places a stream on all servers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "READY", Replicas: 3})
		return err == nil
	})
	o := StreamOptions{Shards: 2, Replicas: 3, MaxBytes: 64 << 20}
	if err := EnsureStreams(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	own, err := OwnStreams(t.Context(), js)
	if err != nil || len(own) != 7 {
		t.Fatalf("%d streams, %v", len(own), err)
	}
	for name, s := range own {
		if s.Config.Replicas != 3 || s.Cluster == nil || len(s.Cluster.Replicas) != 2 {
			t.Errorf("%s: %d replicas, %+v", name, s.Config.Replicas, s.Cluster)
		}
	}
	err = EnsureStreams(t.Context(), js, StreamOptions{Replicas: 5})
	if err == nil || !strings.Contains(err.Error(), "fewer than 5 servers") {
		t.Errorf("five replicas on three servers: %v", err)
	}
	publish(t, js, schema.KindMemory, 1)
	topology := reshard(t, js, 3)
	if topology.Generation != 2 || info(t, js, schema.StreamName(2)).Config.Replicas != 3 ||
		!info(t, js, schema.StreamName(0)).Config.Sealed {
		t.Errorf("resharded to %+v", topology)
	}
	if got := info(t, js, schema.StreamName(0)).State.Msgs; got != 1 {
		t.Errorf("%d messages in the closed shard", got)
	}
}

// cluster runs a server for each route port and returns a connection to the first.
func cluster(t *testing.T, ports []int) jetstream.JetStream {
	t.Helper()
	var routes, urls []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprint("nats://127.0.0.1:", port))
	}
	for i, port := range ports {
		urls = append(urls, bustest.Run(t, &server.Options{
			ServerName: fmt.Sprint("s", i), JetStream: true, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 64 << 20,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		}).ClientURL())
	}
	return bustest.Dial(t, urls[0])
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for len(ports) < n {
		ports = append(ports, bustest.Port(t))
	}
	return ports
}

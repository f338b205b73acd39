// Command quota says when a user holds more GPU memory on a host than a quota. Several share the shards; when one is
// killed another goes on with its state. Try it: go run ./examples/quota -nats nats://bus:4222 -gib 40
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// quota is the state of one shard.
type quota struct {
	most  uint64
	hosts map[string]*host // by cluster/name
}
type host struct{ Live, Used map[string]uint64 } // bytes by process and address, and by user

func (q *quota) Name() string         { return "quota" }
func (q *quota) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }

// Apply follows device memory that is allocated and freed by its address, and the ends of processes.
func (q *quota) Apply(b *schema.Batch) error {
	h := q.host(b.Cluster + "/" + b.Host)
	for i := range b.Events {
		e := b.Memory(i)
		call, p := &b.Calls[e.Call], &b.Processes[b.Threads[e.Thread].Process]
		process, user := fmt.Sprintf("%d since %d: ", p.PID, p.Start), fmt.Sprint(p.UID) // its name may be known later
		switch address := fmt.Sprint(process, e.Ptr); {
		case call.Op == schema.OpExit || call.Op == schema.OpExec:
			for address, bytes := range h.Live {
				if strings.HasPrefix(address, process) {
					h.Used[user] -= bytes
					delete(h.Live, address)
				}
			}
		case e.Result != 0 || call.Class != schema.ClassDevice:
		case call.Op == schema.OpFree:
			h.Used[user] -= h.Live[address]
			delete(h.Live, address)
		case call.Op == schema.OpAlloc:
			h.Live[address] = e.Bytes
			if h.Used[user] += e.Bytes; h.Used[user] > q.most && h.Used[user]-e.Bytes <= q.most {
				fmt.Printf("%s: user %s %s holds %.1f GiB\n", b.Host, user, p.User, float64(h.Used[user])/(1<<30))
			}
		}
	}
	return nil
}

func (q *quota) host(id string) *host {
	if q.hosts[id] == nil {
		q.hosts[id] = &host{map[string]uint64{}, map[string]uint64{}}
	}
	return q.hosts[id]
}

// Snapshot and Restore let the state outlive this process.
func (q *quota) Snapshot(yield func(consumer.Section) error) error {
	for _, id := range slices.Sorted(maps.Keys(q.hosts)) {
		cluster, name, _ := strings.Cut(id, "/")
		if err := yield(consumer.Section{Cluster: cluster, Host: name, Data: must(json.Marshal(q.hosts[id]))}); err != nil {
			return err
		}
	}
	return nil
}
func (q *quota) Restore(s consumer.Section) error {
	return json.Unmarshal(s.Data, q.host(s.Cluster+"/"+s.Host))
}

func main() {
	url, gib := flag.String("nats", nats.DefaultURL, "servers"), flag.Uint64("gib", 40, "GiB that a user may hold on one host")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	js := must(jetstream.New(must(nats.Connect(*url, nats.MaxReconnects(-1)))))
	shard := func() consumer.Stateful { return &quota{*gib << 30, map[string]*host{}} }
	_ = must(0, consumer.New(consumer.Options{}, js, shard, slog.Default()).Run(ctx))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatalln("quota:", err)
	}
	return v
}

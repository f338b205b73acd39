// Command quota reports when a user holds more GPU memory on a host than a quota. Instances share the shards. When one
// is killed, another one continues with its state. Try it: go run ./examples/quota -nats nats://bus:4222 -gib 40
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

var gib = flag.Uint64("gib", 40, "GiB that a user may hold on one host")

type quota map[string]*host // the state of one shard, by cluster/name
type host struct {
	Boot       string
	Live, Used map[string]uint64 // bytes by process and address, and by user
}

func (q quota) Name() string         { return "quota" }
func (q quota) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }

// Apply follows device memory that is allocated and freed by its address, and the ends of processes.
func (q quota) Apply(b *schema.Batch) error {
	h := q[b.Cluster+"/"+b.Host]
	if h == nil || h.Boot != "" && h.Boot != b.BootID { // a reboot ends all processes
		h = &host{Live: map[string]uint64{}, Used: map[string]uint64{}}
		q[b.Cluster+"/"+b.Host] = h
	}
	h.Boot = b.BootID
	for i := range b.Events {
		e := b.Memory(i)
		call, p := &b.Calls[e.Call], &b.Processes[b.Threads[e.Thread].Process]
		process, user := fmt.Sprintf("%d since %d: ", p.PID, p.Start), fmt.Sprint(p.UID) // the name may arrive later
		end := func(address string) { h.Used[user] -= h.Live[address]; delete(h.Live, address) }
		switch address, device := fmt.Sprint(process, e.Ptr), e.Result == 0 && call.Class == schema.ClassDevice; {
		case call.Op == schema.OpExit || call.Op == schema.OpExec:
			for address := range h.Live {
				if strings.HasPrefix(address, process) {
					end(address)
				}
			}
		case device && call.Op == schema.OpFree:
			end(address)
		case device && call.Op == schema.OpAlloc:
			end(address) // a live allocation at this address has ended
			h.Live[address] = e.Bytes
			if h.Used[user] += e.Bytes; h.Used[user] > *gib<<30 && h.Used[user]-e.Bytes <= *gib<<30 {
				fmt.Printf("%s: user %s %s holds %.1f GiB\n", b.Host, user, p.User, float64(h.Used[user])/(1<<30))
			}
		}
	}
	return nil
}

func (q quota) Snapshot(yield func(consumer.Section) error) (err error) {
	for ids := slices.Sorted(maps.Keys(q)); len(ids) > 0 && err == nil; ids = ids[1:] {
		cluster, name, _ := strings.Cut(ids[0], "/")
		err = yield(consumer.Section{Cluster: cluster, Host: name, Data: must(json.Marshal(q[ids[0]]))})
	}
	return err
}
func (q quota) Restore(s consumer.Section) error {
	q[s.Cluster+"/"+s.Host] = &host{}
	return json.Unmarshal(s.Data, q[s.Cluster+"/"+s.Host])
}

func main() {
	o, url := nats.GetDefaultOptions(), flag.String("nats", nats.DefaultURL, "servers")
	flag.Func("ca", "certificate authority of the servers", func(f string) error { return nats.RootCAs(f)(&o) })
	flag.Func("cert", "file of a client certificate and key", func(f string) error { return nats.ClientCert(f, f)(&o) })
	flag.Func("creds", "credentials file", func(f string) error { return nats.UserCredentials(f)(&o) })
	flag.Func("nkey", "file of an nkey seed", func(f string) error { return must(nats.NkeyOptionFromSeed(f))(&o) })
	flag.Parse()
	o.Servers, o.MaxReconnect, o.InboxPrefix = strings.Split(*url, ","), -1, "_INBOX.gputap-quota" // as deploy/nats
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	js, empty := must(jetstream.New(must(o.Connect()))), func() consumer.Stateful { return quota{} }
	_ = must(0, consumer.New(consumer.Options{}, js, empty, slog.Default()).Run(ctx))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatalln("quota:", err)
	}
	return v
}

package inspect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		app.Main("gputap", func(ctx context.Context, p *app.Process) error {
			return command(p, p.Args).ExecuteContext(ctx)
		})
	}
	os.Exit(bustest.Main(m))
}

func command(p *app.Process, args []string) *cobra.Command {
	root := &cobra.Command{Use: "gputap", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(p)...)
	root.SetArgs(args)
	return root
}

const shards = 3

// held is the truth about one process.
type held struct {
	cluster, host string
	pid           uint32
	user, comm    string
	uid           uint32
	live, peak    uint64
	unfreed       uint64
	ended         bool
}

// simFleet is a NATS server with shards and the truth about the processes whose events it stores.
type simFleet struct {
	tb        testing.TB
	server    *server.Server
	url       string
	js        jetstream.JetStream
	shards    int
	processes []held
	stored    map[int]uint64 // messages by shard
}

func newFleet(tb testing.TB, shards int) *simFleet {
	tb.Helper()
	f := &simFleet{tb: tb, shards: shards, stored: map[int]uint64{}}
	f.server = bustest.Run(tb, &server.Options{JetStream: true})
	f.url = f.server.ClientURL()
	f.js = bustest.Dial(tb, f.url)
	f.check(bus.EnsureStreams(tb.Context(), f.js, bus.StreamOptions{Shards: shards}))
	return f
}

func (f *simFleet) check(err error) {
	f.tb.Helper()
	if err != nil {
		f.tb.Fatal(err)
	}
}

// host publishes a heartbeat of a host, and events of so many processes. Each allocates and frees 64 MiB, and then
// allocates another amount than any other. The last one has ended.
func (f *simFleet) host(cluster, name string, processes int) {
	h := consumertest.Memory(f.tb, name)
	h.Header.Cluster = cluster
	gpu := &schema.GPU{UUID: "GPU-" + name, Name: "H200", Bus: "0000:06:00.0", Bytes: 141 << 30}
	for i := range processes {
		seed := uint64(len(f.processes) + 1)
		p := h.Process(uint32(100+i), 5, fmt.Sprintf("job-%d", i))
		p.User, p.UID, p.GPU = fmt.Sprintf("user%d", i%3), uint32(1000+i), gpu
		p.Alloc(7, 1<<32, 64<<20, 10, 1).Free(7, 1<<32, 20, 1).Alloc(8, 2<<32, seed<<20, 30, 1)
		truth := held{cluster, name, p.PID, p.User, p.Comm, p.UID, seed << 20, max(64, seed) << 20, 0, false}
		if i == processes-1 {
			p.Exit(40)
			truth.live, truth.unfreed, truth.ended = 0, truth.live, true
		}
		f.processes = append(f.processes, truth)
	}
	f.publish(cluster, name, schema.KindMemory, h.Message())
	beat := schema.NewBuilder(schema.KindHost)
	beat.Linux, beat.Producer = "6.18", "v1"
	beat.GPU(*gpu)
	header := h.Header
	header.Seq = 1
	f.publish(cluster, name, schema.KindHost, beat.Encode(&header))
}

func (f *simFleet) publish(cluster, host string, kind schema.Kind, message []byte) {
	f.tb.Helper()
	shard := schema.Shard(cluster, host, f.shards)
	_, err := f.js.Publish(f.tb.Context(), schema.Subject(shard, cluster, host, kind), message)
	f.check(err)
	f.stored[shard]++
}

// program is a consumer program with a type of its own.
type program interface {
	run(ctx context.Context, p *app.Process) error
}

type leakProgram struct{}

func (leakProgram) run(ctx context.Context, p *app.Process) error {
	return fold.Leak.Run(ctx, p, func(io.Writer, []*fold.Memory) {})
}

// consume runs a consumer program until the test ends, as its main does.
func (f *simFleet) consume(name string, program program) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &app.Process{
		Name: "gputap-" + name, Metrics: prometheus.NewRegistry(), Stdout: io.Discard, Stderr: io.Discard,
		Log:  slog.New(slog.DiscardHandler),
		Args: []string{"--nats.url", f.url, "--metrics.addr", "", "--log.level", "error"},
	}
	done := make(chan error, 1)
	go func() { done <- program.run(ctx, p) }()
	f.tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.tb.Error(err)
		}
	})
}

// settled waits until every shard has folded all stored messages.
func (f *simFleet) settled(fold string) {
	f.tb.Helper()
	client := query.NewClient(f.js.Conn())
	bustest.Eventually(f.tb, "every shard has folded its messages", func() bool {
		ctx, cancel := context.WithTimeout(f.tb.Context(), time.Second)
		defer cancel()
		topology, _, err := client.Topology(ctx)
		f.check(err)
		a, err := client.Ask(ctx, fold, topology.Numbers(), query.Question{What: "status"})
		f.check(err)
		for _, r := range a.Replies {
			if r.Applied < f.stored[r.Shard] {
				return false
			}
		}
		return len(a.Replies) == f.shards
	})
}

// typed runs a command as a person types it.
func (f *simFleet) typed(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	p := &app.Process{Name: "gputap", Metrics: prometheus.NewRegistry(), Stdout: &out, Stderr: &errs,
		Log: slog.New(slog.DiscardHandler)}
	err = command(p, append(args, "--nats.url", f.url)).ExecuteContext(f.tb.Context())
	return out.String(), errs.String(), err
}

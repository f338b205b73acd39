package answer_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/naive"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/query"
)

// serve answers questions about the folds of all shards until the test ends.
func (p *published) serve(t *testing.T, shards int) *answer.Fleet {
	t.Helper()
	client, nc := query.NewClient(p.js.Conn()), p.js.Conn()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, e := range fold.All() {
		var parts []query.Shard
		var numbers []int
		for shard := range shards {
			f := e.NewUnlimited()
			part := &answer.Part{Reader: p.read(t, shard, f), Folds: fold.Parts(f)}
			parts = append(parts, query.Shard{Number: shard, Epoch: 1, Take: part.Take})
			numbers = append(numbers, shard)
		}
		service := query.NewService(query.Options{Fold: e.Name(), Instance: "i", Interval: time.Millisecond,
			Shards: func() []query.Shard { return parts }}, nc, slog.New(slog.DiscardHandler))
		running.Go(func() { service.Run(ctx) })
		bustest.Eventually(t, "the shards listen", func() bool {
			a, err := client.Ask(ctx, e.Name(), numbers, query.Question{What: "status"})
			return err == nil && len(a.Replies) == shards
		})
	}
	return answer.NewFleet(nc)
}

// notOfProcesses are the keys of a process that the naive count leaves out: see notCounted.
var notOfProcesses = []string{"/*/verdicts/*/why", "/*/torch/*/why"}

// items returns the items of an answer that is complete.
func items[T any](t *testing.T, list *answer.List[T], err error) []T {
	t.Helper()
	must(t, err)
	must(t, list.Incomplete())
	if list.Total != len(list.Items) {
		t.Errorf("%d items, total %d", len(list.Items), list.Total)
	}
	return list.Items
}

// TestFleetEqualsNaiveCount compares every key of the answers of two shards with a naive count over the same events.
func TestFleetEqualsNaiveCount(t *testing.T) {
	t.Parallel()
	const shards = 2
	p := publish(t, 5, shards)
	f, ctx, all := p.serve(t, shards), t.Context(), query.Question{}
	compare := func(what string, got, want any, skipped []string, key string) {
		same(t, what, got, want, skipped, map[string]string{"": key, "/*/pools": "handle", "/*/verdicts": "gpu",
			"/*/top_kernels/*/shapes": "grid"})
	}
	processes, err := f.Describe(ctx, query.Filter{}, 20)
	compare("processes", items(t, processes, err), p.log.Processes(20), notOfProcesses, "start")
	hosts, err := f.Hosts(ctx, all)
	compare("hosts", items(t, hosts, err), p.log.FleetHosts(), nil, "gpus")
	gpus, err := f.GPUs(ctx, all)
	compare("GPUs", items(t, gpus, err), p.log.FleetGPUs(), nil, "uuid")
	kernels, err := f.Kernels(ctx, all)
	compare("kernels", items(t, kernels, err), p.log.FleetRows("kernels", "kernel"), nil, "start")
	copies, err := f.Copies(ctx, all)
	compare("copies", items(t, copies, err), p.log.FleetRows("copies", "direction"), nil, "start")
	now := time.Now().UTC()
	o, err := answer.OverviewAt(f, ctx, query.Filter{}, now)
	must(t, err)
	same(t, "top", o.Top(), p.log.Top(now, shards, nil, nil), []string{"/firing"}, map[string]string{"/items": "start"})
	late := p.log.Hosts()[1].(naive.Object)["heard"].(time.Time).Add(30 * time.Second)
	o, err = answer.OverviewAt(f, ctx, query.Filter{}, late)
	must(t, err)
	same(t, "top after a silence", o.Top(), p.log.Top(late, shards, nil, nil), []string{"/firing"},
		map[string]string{"/items": "start"})
}

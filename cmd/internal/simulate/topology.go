package simulate

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const (
	topologyTime  = 5 * time.Second // timeout of a read
	topologyPause = time.Second     // pause between two reads
)

// Topology returns a function that reads the topology. Without a stored topology there is one shard, number 0.
func Topology(js jetstream.JetStream) func(context.Context) (schema.Topology, error) {
	single := schema.Topology{Generation: 1, Shards: 1}
	return func(ctx context.Context) (schema.Topology, error) {
		ctx, cancel := context.WithTimeout(ctx, topologyTime)
		defer cancel()
		t, err := eventbus.ReadTopology(ctx, js)
		if errors.Is(err, eventbus.ErrNoTopology) {
			return single, nil
		}
		return t, err
	}
}

// places holds the topology. All workers read it.
type places struct {
	read    func(context.Context) (schema.Topology, error)
	current atomic.Pointer[schema.Topology]
	stale   chan struct{}
	log     *slog.Logger
}

func newPlaces(
	ctx context.Context, read func(context.Context) (schema.Topology, error), log *slog.Logger,
) (*places, error) {
	t, err := read(ctx)
	if err != nil {
		return nil, err
	}
	p := &places{read: read, stale: make(chan struct{}, 1), log: log}
	p.current.Store(&t)
	return p, nil
}

// refresh asks run to read the topology again.
func (p *places) refresh() {
	select {
	case p.stale <- struct{}{}:
	default:
	}
}

// run reads the topology after each refresh, until ctx ends.
func (p *places) run(ctx context.Context) {
	for {
		select {
		case <-p.stale:
		case <-ctx.Done():
			return
		}
		t, err := p.read(ctx)
		switch now := p.current.Load(); {
		case err != nil:
			p.log.Debug("read topology failed", "err", err)
		case t.Generation != now.Generation || t.First != now.First || t.Shards != now.Shards:
			p.current.Store(&t)
			p.log.Info("shards changed", "generation", t.Generation, "first", t.First, "shards", t.Shards)
		}
		select {
		case <-time.After(topologyPause):
		case <-ctx.Done():
			return
		}
	}
}

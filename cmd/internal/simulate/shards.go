package simulate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const (
	topologyTime  = 5 * time.Second // timeout of a read
	topologyPause = time.Second     // between two reads
)

// shards holds the topology.
type shards struct {
	js      jetstream.JetStream
	current atomic.Pointer[schema.Topology]
	reading sync.Mutex
	last    time.Time // end of the last read
}

// read reads the topology. Without a stored topology there is one shard, number 0.
func (s *shards) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, topologyTime)
	defer cancel()
	t, err := eventbus.ReadTopology(ctx, s.js)
	if errors.Is(err, eventbus.ErrNoTopology) {
		t, err = schema.Topology{Generation: 1, Shards: 1}, nil
	}
	if err == nil {
		s.current.Store(&t)
	}
	return err
}

func (s *shards) subject(of flow) string {
	return schema.Subject(s.current.Load().Shard(of.cluster, of.host), of.cluster, of.host, of.kind)
}

// refresh reads the topology again, unless another goroutine does so or did so a moment ago.
func (s *shards) refresh(ctx context.Context) {
	if !s.reading.TryLock() {
		return
	}
	defer s.reading.Unlock()
	if time.Since(s.last) < topologyPause {
		return
	}
	_ = s.read(ctx) // the next failure reads again
	s.last = time.Now()
}

package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const requestsAtOnce = 16

// errNotSaved: a shard has no saved state.
var errNotSaved = errors.New("no state is saved")

// takenOver reports whether all of a fold's shards of a generation have saved their inherited states. If a request is
// not answered, it returns an error.
func takenOver(ctx context.Context, js jetstream.JetStream, fold string, g *schema.Topology) (bool, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	states, err := js.Stream(ctx, schema.StateStream)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	shards := make(chan int, g.Shards)
	for _, shard := range g.Numbers() {
		shards <- shard
	}
	close(shards)
	var requests sync.WaitGroup
	for range min(requestsAtOnce, g.Shards) {
		requests.Go(func() {
			for shard := range shards {
				if ctx.Err() != nil {
					return
				}
				if err := checkSaved(ctx, &store{js: js, jsStream: states, fold: fold, shard: shard}); err != nil {
					stop(err)
				}
			}
		})
	}
	requests.Wait()
	err = context.Cause(ctx)
	if errors.Is(err, errNotSaved) {
		return false, nil
	}
	return err == nil, err
}

func checkSaved(ctx context.Context, c *store) error {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	m, err := c.latest(ctx)
	if err == nil && !m.saved() {
		err = errNotSaved
	}
	return err
}

// closedShards finds out which closed generations the next one has taken over: nobody needs to own their shards again.
// It asks in the background, so that an instance can join while NATS is slow. Only the Group's goroutine uses it.
type closedShards struct {
	known   bool             // the answer has come since the topology was last different
	answers chan takenShards // nil: no question is open
}

// takenShards is an answer, for one bus and topology.
type takenShards struct {
	created  time.Time
	topology schema.Topology
	shards   []int
}

// ask begins to ask about the generations that are not finished.
func (g *Group) askTakenOver(ctx context.Context) {
	all := g.topology.Generations()
	var open []int
	for i := range all[:len(all)-1] {
		if slices.ContainsFunc(all[i].Numbers(), func(shard int) bool { return g.stateOf(shard) != finished }) {
			open = append(open, i)
		}
	}
	g.closed.known = g.closed.known || len(open) == 0
	if g.closed.answers != nil || len(open) == 0 {
		return
	}
	answers := make(chan takenShards, 1)
	g.closed.answers = answers
	taken := takenShards{created: g.created, topology: g.topology}
	go func() {
		for _, i := range open {
			done, err := takenOver(ctx, g.js, g.opts.Fold, &all[i+1])
			if err != nil {
				g.log.Debug("cannot check whether a generation was taken over", "generation", all[i].Generation, "err",
					err)
				break
			}
			if done {
				taken.shards = append(taken.shards, all[i].Numbers()...)
			}
		}
		answers <- taken
	}()
}

// readTakenOver applies the answer, if it has come. An error counts as the answer "no".
func (g *Group) readTakenOver(ctx context.Context) {
	select {
	case taken := <-g.closed.answers:
		g.closed.answers = nil
		if taken.created.Equal(g.created) && taken.topology.Equal(g.topology) {
			g.closed.known = true
			for _, shard := range taken.shards {
				g.apply(shard, event{what: wasTakenOver})
			}
		}
	default:
	}
	if !g.closed.known {
		g.askTakenOver(ctx)
	}
}

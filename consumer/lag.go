package consumer

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// behind tells how many messages wait behind the last one dealt with. Each says how many there were when it was sent; many
// may have been sent before more was stored, and wait here. All are sequences of one JetStream consumer.
type behind struct {
	dealt  uint64 // last one dealt with
	sent   uint64 // last one sent when the bus was last asked
	stored uint64 // what the last one stored then would be
}

func (b *behind) dealtWith(meta *jetstream.MsgMetadata) (lag uint64) {
	b.dealt = meta.Sequence.Consumer
	if b.dealt <= b.sent {
		return b.stored - b.dealt
	}
	return meta.NumPending
}

// lookBehind asks the bus what is stored by now, when a step takes its time.
func (r *Reader) lookBehind(ctx context.Context, consumer string) {
	if r.stepping.TryLock() {
		r.stepping.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lagInterval)
	defer cancel()
	c, err := r.jsStream.Consumer(ctx, consumer)
	if err != nil {
		return // it is asked again, or the fetch ends
	}
	info := c.CachedInfo()
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent := info.Delivered.Consumer; sent >= r.behind.dealt { // else the last one dealt with knows better
		r.behind.sent, r.behind.stored = sent, sent+info.NumPending
		r.stats.Lag = r.behind.stored - r.behind.dealt
	}
}

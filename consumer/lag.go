package consumer

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const lagInterval = time.Second

// lag tells how many messages are stored after the last one read. Each message says how many there were when it was
// sent; but many may be waiting in this process, sent before more were stored. All values are sequences of one
// JetStream consumer.
type lag struct {
	read   uint64 // last message read
	sent   uint64 // last message sent when NATS was last asked
	stored uint64 // sequence that the last message stored then would get
}

// advance records a message that was read and returns the lag after it.
func (l *lag) advance(meta *jetstream.MsgMetadata) uint64 {
	l.read = meta.Sequence.Consumer
	if l.read <= l.sent {
		return l.stored - l.read
	}
	return meta.NumPending
}

// updateLag asks NATS how many messages are stored, if a step takes long.
func (r *Reader) updateLag(ctx context.Context, consumer string) {
	if r.stepping.TryLock() {
		r.stepping.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lagInterval)
	defer cancel()
	c, err := r.jsStream.Consumer(ctx, consumer)
	if err != nil {
		return // the next tick asks again, or the fetch ends
	}
	info := c.CachedInfo()
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent := info.Delivered.Consumer; sent >= r.lag.read { // else the last message read knows better
		r.lag.sent, r.lag.stored = sent, sent+info.NumPending
		r.stats.Lag = r.lag.stored - r.lag.read
	}
}

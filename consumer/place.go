package consumer

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// place is what a Consumer remembers of the stream it reads, to know it again after a reset.
type place struct {
	begun    bool
	late     bool      // reading began behind the stream's beginning, as Options say
	created  time.Time // of the stream
	stored   time.Time // when the bus stored the last message dealt with
	firstSeq uint64    // oldest message that the stream held when last looked at
}

// startFrom is where the next fetch starts: where the last one ended, if the stream is the same.
func (c *Consumer) startFrom(ctx context.Context) jetstream.OrderedConsumerConfig {
	info := c.jsStream.CachedInfo()
	p := &c.place
	switch {
	case !p.begun && c.opts.New:
		p.late = info.State.LastSeq > 0
		c.setApplied(info.State.LastSeq)
	case !p.begun:
		p.late = !c.opts.Since.IsZero()
	case !c.sameStream(ctx, info):
		c.log.Warn("stream was written anew: reading it from its beginning", "stream", info.Config.Name)
		*p = place{}
		c.setApplied(0)
	}
	since := p.late && !c.opts.Since.IsZero() && c.Applied() == 0
	p.begun, p.created, p.firstSeq = true, info.Created, info.State.FirstSeq
	if since {
		return jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &c.opts.Since}
	}
	return jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: c.Applied() + 1,
	}
}

// sameStream reports whether the stream is still the one that was read, up to the last message dealt
// with. A power loss may take the end of a stream, whose sequences are then used again.
func (c *Consumer) sameStream(ctx context.Context, info *jetstream.StreamInfo) bool {
	applied := c.Applied()
	if !info.Created.Equal(c.place.created) || info.State.LastSeq < applied {
		return false
	}
	if applied < info.State.FirstSeq || c.place.stored.IsZero() {
		return true // retention took it: nothing left to compare
	}
	last, err := c.jsStream.GetMsg(ctx, applied)
	return err != nil || last.Time.Equal(c.place.stored)
}

// unseenReason says why the first batch of a run is not its first: "" is a loss.
func (c *Consumer) unseenReason() string {
	switch {
	case c.place.late:
		return reasonLateStart
	case c.retained():
		return reasonRetention
	}
	return ""
}

// retained reports whether the stream has let go of its beginning. Once it has, it stays so.
func (c *Consumer) retained() bool {
	if c.place.firstSeq > 1 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if info, err := c.jsStream.Info(ctx); err == nil {
		c.place.firstSeq = info.State.FirstSeq
	}
	return c.place.firstSeq > 1
}

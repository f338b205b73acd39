package consumer

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readMetadata reads a message's metadata from its reply subject into meta. The library's Metadata allocates for each
// message, a fifth of the cost of a small one; it is only used for forms that parseReply does not know.
func readMetadata(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
	if parseReply(m.Reply(), meta) {
		return nil
	}
	full, err := m.Metadata()
	if err != nil {
		return err
	}
	*meta = *full
	return nil
}

// parseReply reads
// $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>; with a
// domain more tokens may follow. It does not set the domain.
func parseReply(reply string, meta *jetstream.MsgMetadata) bool {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	dots := strings.Count(rest, ".")
	if !ok || dots != 6 && dots < 8 {
		return false
	}
	if dots > 6 {
		_, rest, _ = strings.Cut(rest, ".")
		_, rest, _ = strings.Cut(rest, ".")
	}
	*meta = jetstream.MsgMetadata{}
	meta.Stream, rest, _ = strings.Cut(rest, ".")
	meta.Consumer, rest, _ = strings.Cut(rest, ".")
	var stored uint64
	for _, to := range [...]*uint64{&meta.NumDelivered, &meta.Sequence.Stream, &meta.Sequence.Consumer, &stored,
		&meta.NumPending} {
		var number string
		var err error
		number, rest, _ = strings.Cut(rest, ".")
		if *to, err = strconv.ParseUint(number, 10, 64); err != nil {
			return false
		}
	}
	meta.Timestamp = time.Unix(0, int64(stored))
	return true
}

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

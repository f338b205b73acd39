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

// lagAfter returns how many messages are stored after one that was read. The message says how many there were when it
// was sent; but it may have waited in this process while more were stored. mu must be held.
func (r *Reader) lagAfter(meta *jetstream.MsgMetadata) uint64 {
	r.newest = max(r.newest, meta.Sequence.Stream+meta.NumPending)
	return r.newest - meta.Sequence.Stream
}

// updateLag asks NATS for the end of the stream, if a step takes long.
func (r *Reader) updateLag(ctx context.Context) {
	if r.stepping.TryLock() {
		r.stepping.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lagInterval)
	defer cancel()
	info, err := r.jsStream.Info(ctx)
	if err != nil {
		return // the next tick asks again, or the fetch ends
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = max(r.newest, info.State.LastSeq)
	r.stats.Lag = r.newest - min(r.newest, max(r.applied, info.State.FirstSeq-1))
}

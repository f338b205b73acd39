package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// place is what a Reader remembers of the stream it reads, to know it again after a reset.
type place struct {
	begun    bool
	late     bool      // reading began behind the stream's beginning, as ReaderOptions say
	cut      bool      // reading began when the beginning was gone, or is in shards of generations before that were not folded
	whole    bool      // what generations before held of the shard's hosts is taken over; until reading began
	created  time.Time // of the stream
	stored   time.Time // when the bus stored the last message dealt with, in a step the one at hand
	firstSeq uint64    // oldest message that the stream held when last looked at
}

// startFrom is where the next fetch starts: where the last one ended, if the stream is the same. What cannot be known is an error.
func (r *Reader) startFrom(ctx context.Context) (config jetstream.OrderedConsumerConfig, err error) {
	info := r.jsStream.CachedInfo()
	p := &r.place
	same, cut := true, p.cut
	if p.begun {
		if same, err = sameStream(ctx, r.jsStream, r.position()); err != nil {
			return config, err
		}
	} else if cut = cut || info.State.FirstSeq > 1; !cut && !p.whole {
		if cut, err = r.ofLaterGeneration(ctx); err != nil {
			return config, err
		}
	}
	r.stepping.Lock() // the state may be saved meanwhile
	defer r.stepping.Unlock()
	p.cut = cut
	switch {
	case !p.begun && r.opts.New:
		p.late = info.State.LastSeq > 0
		r.setApplied(info.State.LastSeq)
	case !p.begun:
		p.late = !r.opts.Since.IsZero()
	case !same:
		r.log.Warn("stream was written anew: reading it from its beginning", "stream", info.Config.Name)
		*p = place{cut: cut}
		r.setApplied(0)
	}
	since := p.late && !r.opts.Since.IsZero() && r.Applied() == 0
	p.begun, p.created, p.firstSeq = true, info.Created, info.State.FirstSeq
	if since {
		return jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &r.opts.Since}, nil
	}
	return jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.Applied() + 1,
	}, nil
}

// ofLaterGeneration reports whether hosts may have published to another shard before this one. A bus without a topology
// has one generation.
func (r *Reader) ofLaterGeneration(ctx context.Context) (bool, error) {
	if r.opts.Shard == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	t, err := ReadTopology(ctx, r.js)
	if err != nil && !errors.Is(err, ErrNoTopology) {
		return false, err
	}
	generation, _ := t.Find(r.opts.Shard)
	return generation.Generation > 1, nil
}

// errBehind: a replica does not have yet what the leader of its stream has.
var errBehind = errors.New("a replica is behind")

// sameStream reports whether a stream, as its leader has just described it, is still the one that was read up to a message. A power
// loss may take the end of a stream, whose sequences are then used again.
func sameStream(ctx context.Context, s jetstream.Stream, at *manifest) (bool, error) {
	info := s.CachedInfo()
	if !info.Created.Equal(at.Created) || info.State.LastSeq < at.Sequence {
		return false, nil
	}
	if at.Sequence < info.State.FirstSeq || at.Stored.IsZero() {
		return true, nil // retention took it: nothing left to compare
	}
	last, err := s.GetMsg(ctx, at.Sequence)
	if err == nil {
		return last.Time.Equal(at.Stored), nil
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) { // as a replica says, which may be behind
		err = removed(ctx, s, at.Sequence)
	}
	if err != nil {
		return false, fmt.Errorf("look at message %d of %s: %w", at.Sequence, info.Config.Name, err)
	}
	return true, nil
}

// removed asks the stream's leader whether it does not have a message any more either: else it is an error.
func removed(ctx context.Context, s jetstream.Stream, sequence uint64) error {
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err == nil && sequence >= info.State.FirstSeq && !slices.Contains(info.State.Deleted, sequence) {
		return errBehind
	}
	return err
}

// position is up to where the stream was read. It waits for the step under way.
func (r *Reader) position() *manifest {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	return &manifest{Sequence: r.Applied(), Stored: r.place.stored, Created: r.place.created}
}

// unseenReason says why the first batch of a run is not its first: "" is a loss.
func (r *Reader) unseenReason() string {
	switch {
	case r.place.late:
		return reasonLateStart
	case r.place.cut || r.retained():
		return reasonRetention
	}
	return ""
}

// retained reports whether the stream has let go of its beginning. Once it has, it stays so. It waits for the answer of a stream
// that is there.
func (r *Reader) retained() bool {
	for r.place.firstSeq <= 1 {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		info, err := r.jsStream.Info(ctx)
		cancel()
		if err == nil {
			r.place.firstSeq = info.State.FirstSeq
			break
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
			break
		}
		r.warn("stream does not say where it begins: asking again until it does", "stream", r.jsStream.CachedInfo().Config.Name, "err", err)
		if !r.pause() {
			break
		}
	}
	return r.place.firstSeq > 1
}

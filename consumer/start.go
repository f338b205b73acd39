package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// startPoint is where reading began, and identifies the stream after a reset.
type startPoint struct {
	begun bool
	late  bool // reading began after the stream's beginning, as ReaderOptions ask
	// when reading began, the beginning was removed, or lies in earlier generations that were not folded
	truncated bool
	uncovered [schema.NumKinds]bool // kinds that the restored state of a Replay does not cover
	complete  bool                  // the state covers what earlier generations held of the shard's hosts
	created   time.Time             // when the stream was created
	stored    time.Time             // when NATS stored the last message read; during a step, the current one
	firstSeq  uint64                // oldest message of the stream when last looked at
}

// startConfig says where the next fetch starts: after the last message read, if the stream is the same. It returns an
// error if that is not known.
func (r *Reader) startConfig(ctx context.Context) (config jetstream.OrderedConsumerConfig, err error) {
	info := r.jsStream.CachedInfo()
	s := &r.start
	same, truncated := true, s.truncated
	if s.begun {
		if same, err = bus.SameStream(ctx, r.jsStream, r.position()); err != nil {
			return config, err
		}
	} else if truncated = truncated || info.State.FirstSeq > 1; !truncated && !s.complete {
		if truncated, err = r.inLaterGeneration(ctx); err != nil {
			return config, err
		}
	}
	r.stepping.Lock() // the state may be saved meanwhile
	defer r.stepping.Unlock()
	s.truncated = truncated
	switch {
	case !s.begun && r.opts.New:
		s.late = info.State.LastSeq > 0
		r.setApplied(info.State.LastSeq)
	case !s.begun:
		s.late = !r.opts.Since.IsZero()
	case !same:
		r.log.Warn("stream recreated; reading it from its beginning", "stream", info.Config.Name)
		*s = startPoint{truncated: truncated}
		r.setApplied(0)
	}
	since := s.late && !r.opts.Since.IsZero() && r.Applied() == 0
	s.begun, s.created, s.firstSeq = true, info.Created, info.State.FirstSeq
	if since {
		return jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &r.opts.Since,
		}, nil
	}
	return jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.Applied() + 1,
	}, nil
}

// inLaterGeneration reports whether hosts of this shard may have published to another shard before.
func (r *Reader) inLaterGeneration(ctx context.Context) (bool, error) {
	if r.opts.Shard == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	t, err := bus.ReadTopology(ctx, r.js)
	if err != nil {
		return false, err
	}
	generation, _ := t.Find(r.opts.Shard)
	return generation.Generation > 1, nil
}

// resume makes the first fetch continue after a checkpoint, if the stream is the same.
func (r *Reader) resume(at bus.Position) {
	r.start.complete, r.start.stored, r.start.created = true, at.Stored, at.Created
	r.start.begun = !at.Created.IsZero() // an inherited state may be saved before anything was read
	r.setApplied(at.Sequence)
}

// position returns up to where the stream was read. It waits for the current step.
func (r *Reader) position() bus.Position {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	return r.positionLocked()
}

func (r *Reader) positionLocked() bus.Position {
	return bus.Position{Sequence: r.Applied(), Stored: r.start.stored, Created: r.start.created}
}

// unseenReason returns why batches of a kind before the first one of a run do not count as lost; "": they do.
func (r *Reader) unseenReason(kind schema.Kind) string {
	switch {
	case r.start.late:
		return reasonLateStart
	case r.start.truncated || r.start.uncovered[kind] || r.retentionBegan():
		return reasonRetention
	}
	return ""
}

// retentionBegan reports whether retention has removed the beginning of the stream, which stays so. While NATS does not
// answer it waits: without the answer a removed batch would count as lost.
func (r *Reader) retentionBegan() bool {
	for r.start.firstSeq <= 1 && r.jsStream != nil { // a Replay has no stream
		ctx, cancel := context.WithTimeout(context.Background(), bus.RequestTimeout)
		info, err := r.jsStream.Info(ctx)
		cancel()
		if err == nil {
			r.start.firstSeq = info.State.FirstSeq
			break
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
			break
		}
		r.warn("cannot read the first sequence of the stream; retrying", "stream", r.jsStream.CachedInfo().Config.Name,
			"err", err)
		if !r.pause() {
			break
		}
	}
	return r.start.firstSeq > 1
}

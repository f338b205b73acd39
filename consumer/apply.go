package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

var (
	errNoSeq        = errors.New("the batch has no seq")
	errWrongSubject = errors.New("the batch names another host, shard or kind than its subject")
)

// outcome is what became of one message.
type outcome int

const (
	outcomeOK outcome = iota
	outcomeDuplicate
	outcomeInvalid
	outcomeRefused
	outcomeUnknown
	numOutcomes
	outcomeSkipped = numOutcomes // of a kind that the fold does not take; not counted
)

var outcomeWords = [numOutcomes]string{
	outcomeOK: "ok", outcomeDuplicate: "duplicate", outcomeInvalid: "invalid", outcomeRefused: "refused",
	outcomeUnknown: "unknown_kind",
}

// step handles one message and then wakes WaitFor.
func (r *Reader) step(m jetstream.Msg, meta *jetstream.MsgMetadata) {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	if applied := r.Applied(); meta.Sequence.Stream <= applied {
		r.warn("message delivered again; skipped", "seq", meta.Sequence.Stream, "applied", applied,
			"jetstream_consumer", meta.Consumer, "delivery", meta.Sequence.Consumer, "of_message", meta.NumDelivered)
		return
	}
	r.forgetSilentHosts(meta.Timestamp)
	result := outcomeSkipped
	if r.wants(m.Subject()) {
		result = r.take(m, meta)
	}
	if r.owner != "" && !r.began {
		r.began = true
		r.log.Info("first batch folded", "seq", meta.Sequence.Stream)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.count(result, &r.batch)
	r.stats.Lag = r.lagAfter(meta)
	r.advance(meta.Sequence.Stream)
}

// take handles one message that the fold takes.
func (r *Reader) take(m jetstream.Msg, meta *jetstream.MsgMetadata) outcome {
	began := time.Now()
	result, err := r.handle(m.Subject(), m.Data())
	if err != nil {
		r.deadLetter(m, meta, err)
	}
	r.timing.observe(result, &r.batch, began)
	return result
}

// forgetSilentHosts records when NATS stored the current message. Once in each hour of that time, which is the same for
// every reader, it forgets hosts that have been silent for long.
func (r *Reader) forgetSilentHosts(stored time.Time) {
	if !stored.Truncate(time.Hour).Equal(r.start.stored.Truncate(time.Hour)) {
		r.mu.Lock()
		forgotten := r.hosts.forgetSilent(stored)
		r.mu.Unlock()
		for _, id := range forgotten {
			r.forget(id)
		}
	}
	r.start.stored = stored
}

// handle takes one message through decoding, gap proof and fold. An error means that the message is useless.
func (r *Reader) handle(subject string, data []byte) (outcome, error) {
	b := &r.batch
	if err := r.decoder.Decode(data, b); err != nil {
		return outcomeInvalid, err
	}
	if b.Kind == schema.KindNone {
		return outcomeUnknown, nil
	}
	if b.Seq == 0 {
		return outcomeInvalid, errNoSeq
	}
	// NATS lets a host publish only below its own subject; its batches must not name another host.
	r.subject = schema.AppendSubject(r.subject[:0], r.opts.Shard, b.Cluster, b.Host, b.Kind)
	if subject != string(r.subject) {
		return outcomeInvalid, errWrongSubject
	}
	if !r.prove(b) {
		return outcomeDuplicate, nil
	}
	err := r.apply(b)
	if err != nil {
		r.reportLoss(b, 1)
	}
	r.tick(b)
	if err != nil {
		return outcomeRefused, err
	}
	return outcomeOK, nil
}

// tick tells the fold how far the batch's run is complete, if the batch has moved that.
func (r *Reader) tick(b *schema.Batch) {
	fold, ok := r.fold.(ticking)
	if !ok {
		return
	}
	s := r.runs.young[runID{b.Cluster, b.Host, b.BootID, b.Run}]
	if b.Kind == schema.KindHost {
		s.expect(b.Ends, r.kinds)
	}
	through := s.complete()
	if through == 0 {
		return
	}
	if err := guard(func() error { fold.Tick(&b.Header, through); return nil }); err != nil {
		r.log.Error("fold failed to close a window", "host", b.Host, "err", err)
	}
}

// prove reports whether the batch is new, and counts the batches before it that never came.
func (r *Reader) prove(b *schema.Batch) bool {
	r.mu.Lock()
	s := r.runs.of(&b.Header)
	_, known := r.hosts[hostID{Cluster: b.Cluster, Host: b.Host}]
	cameBack := !known && s.seq != [schema.NumKinds]uint64{}
	last := s.accept(&b.Header)
	r.mu.Unlock()
	if b.Seq <= last {
		return false
	}
	absent := b.Seq - last - 1
	reason := ""
	if absent > 0 && last == 0 {
		reason = r.unseenReason(b.Kind)
	}
	r.mu.Lock()
	r.stats.countAbsent(reason, absent)
	evicted := r.hosts.record(&b.Header, r.start.stored, reason, absent)
	r.mu.Unlock()
	for _, id := range evicted {
		r.warn("too many hosts in a shard; evicted the host that was silent for longest; add shards with "+
			"gputap stream init --shards", "host", id.Host, "limit", maxHosts)
		r.forget(id)
	}
	if absent > 0 {
		r.logAbsent(b, reason, absent)
		r.reportLoss(b, absent)
	}
	if _, forgot := r.fold.(forgetful); cameBack && forgot && b.Kind != schema.KindRank {
		r.callLost(b, 1)
	}
	return true
}

func (r *Reader) logAbsent(b *schema.Batch, reason string, batches uint64) {
	if reason != "" {
		r.log.Debug("batches from before this reader", "host", b.Host, "kind", b.Kind.String(), "batches", batches,
			"reason", reason)
		return
	}
	r.warn("missing batches", "host", b.Host, "kind", b.Kind.String(), "seq", b.Seq, "batches", batches)
}

// reportLoss tells the fold about batches that it will not see. Heartbeats hold no events, and a fold of ranks sees
// that a window of a rank is missing.
func (r *Reader) reportLoss(b *schema.Batch, batches uint64) {
	if b.Kind != schema.KindHost && b.Kind != schema.KindRank {
		r.callLost(b, batches)
	}
}

func (r *Reader) callLost(b *schema.Batch, batches uint64) {
	fold, ok := r.fold.(lossAware)
	if !ok {
		return
	}
	if err := guard(func() error { fold.Lost(b.Cluster, b.Host, b.BootID, batches); return nil }); err != nil {
		r.log.Error("fold failed to record a loss", "host", b.Host, "err", err)
	}
}

// forget tells the fold to forget a host.
func (r *Reader) forget(id hostID) {
	fold, ok := r.fold.(forgetful)
	if !ok {
		return
	}
	if err := guard(func() error { fold.Forget(id.Cluster, id.Host); return nil }); err != nil {
		r.log.Error("fold failed to forget a host", "host", id.Host, "err", err)
	}
}

// apply does not use guard: its closure would cost an allocation for each batch.
func (r *Reader) apply(b *schema.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.warn("fold panicked", "host", b.Host, "err", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("fold panicked: %v", p)
		}
	}()
	return r.fold.Apply(b)
}

const warnInterval = 10 * time.Second

// warn logs one message at most every ten seconds: a broken host must not fill the log.
func (r *Reader) warn(msg string, args ...any) {
	if now := time.Now(); now.Sub(r.warned[msg]) >= warnInterval {
		r.warned[msg] = now
		r.log.Warn(msg, args...)
	}
}

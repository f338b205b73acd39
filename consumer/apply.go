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
	errNoSeq     = errors.New("batch has no seq")
	errElsewhere = errors.New("batch claims another origin than its subject")
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
)

var outcomeWords = [numOutcomes]string{
	outcomeOK: "ok", outcomeDuplicate: "duplicate", outcomeInvalid: "invalid", outcomeRefused: "refused",
	outcomeUnknown: "unknown_kind",
}

// step deals with one message, and then says so to WaitFor.
func (r *Reader) step(m jetstream.Msg, meta *jetstream.MsgMetadata) {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	if applied := r.Applied(); meta.Sequence.Stream <= applied {
		r.warn("message came again and is passed over", "seq", meta.Sequence.Stream, "applied", applied, "jetstream_consumer", meta.Consumer,
			"delivery", meta.Sequence.Consumer, "of_message", meta.NumDelivered)
		return
	}
	r.goOnTo(meta.Timestamp)
	if !r.wants(m.Subject()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Lag = r.behind.dealtWith(meta)
		r.advance(meta.Sequence.Stream)
		return
	}
	began := time.Now()
	done, err := r.handle(m)
	if err != nil {
		r.deadLetter(m, meta, err)
	}
	r.timing.observe(done, &r.batch, began)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.count(done, &r.batch)
	r.stats.Lag = r.behind.dealtWith(meta)
	r.advance(meta.Sequence.Stream)
}

// goOnTo takes note of when the bus stored the message at hand. With each hour of that time, which is the same for every
// reader, hosts that have been silent for long are let go of.
func (r *Reader) goOnTo(stored time.Time) {
	if !stored.Truncate(time.Hour).Equal(r.place.stored.Truncate(time.Hour)) {
		r.mu.Lock()
		gone := r.hosts.forget(stored)
		r.mu.Unlock()
		for _, id := range gone {
			r.letGo(id)
		}
	}
	r.place.stored = stored
}

// handle takes one message through decode, proof and fold. An error is a message of no use.
func (r *Reader) handle(m jetstream.Msg) (outcome, error) {
	b := &r.batch
	if err := r.decoder.Decode(m.Data(), b); err != nil {
		return outcomeInvalid, err
	}
	if b.Kind == schema.KindNone {
		return outcomeUnknown, nil
	}
	if b.Seq == 0 {
		return outcomeInvalid, errNoSeq
	}
	// A host may publish below its own subject only, and must not speak for another.
	r.subject = schema.AppendSubject(r.subject[:0], r.opts.Shard, b.Cluster, b.Host, b.Kind)
	if m.Subject() != string(r.subject) {
		return outcomeInvalid, errElsewhere
	}
	if !r.prove(b) {
		return outcomeDuplicate, nil
	}
	if err := r.apply(b); err != nil {
		r.tell(b, 1)
		return outcomeRefused, err
	}
	return outcomeOK, nil
}

// prove reports whether the batch is new, and counts the ones before it that never came.
func (r *Reader) prove(b *schema.Batch) bool {
	r.mu.Lock()
	s := r.runs.of(&b.Header)
	_, known := r.hosts[hostID{b.Cluster, b.Host}]
	back := !known && s.seq != [schema.NumKinds]uint64{}
	last := s.accept(&b.Header)
	r.mu.Unlock()
	if b.Seq <= last {
		return false
	}
	absent := b.Seq - last - 1
	reason := ""
	if absent > 0 && last == 0 {
		reason = r.unseenReason()
	}
	r.mu.Lock()
	r.stats.absent(reason, absent)
	gone := r.hosts.saw(&b.Header, r.place.stored, reason, absent)
	r.mu.Unlock()
	for _, id := range gone {
		r.warn("a shard has too many hosts: the one silent for longest is forgotten; give the bus more shards (gputap stream init --shards)",
			"host", id.host, "hosts", maxHosts)
		r.letGo(id)
	}
	if absent > 0 {
		r.sayAbsent(b, reason, absent)
		r.tell(b, absent)
	}
	if _, forgot := r.fold.(forgetful); back && forgot {
		r.tellLost(b, 1)
	}
	return true
}

func (r *Reader) sayAbsent(b *schema.Batch, reason string, batches uint64) {
	if reason != "" {
		r.log.Debug("batches from before this reader", "host", b.Host, "kind", b.Kind.String(), "batches", batches, "reason", reason)
		return
	}
	r.warn("batches are missing", "host", b.Host, "kind", b.Kind.String(), "seq", b.Seq, "batches", batches)
}

// tell tells a fold that wants to know of batches that it will not see. Heartbeats hold no events.
func (r *Reader) tell(b *schema.Batch, batches uint64) {
	if b.Kind != schema.KindHost {
		r.tellLost(b, batches)
	}
}

func (r *Reader) tellLost(b *schema.Batch, batches uint64) {
	fold, ok := r.fold.(lossAware)
	if !ok {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("fold panicked over a loss", "err", p, "stack", string(debug.Stack()))
		}
	}()
	fold.Lost(b.Cluster, b.Host, b.BootID, batches)
}

// letGo has a fold that forgets hosts forget one.
func (r *Reader) letGo(id hostID) {
	fold, ok := r.fold.(forgetful)
	if !ok {
		return
	}
	if err := guard(func() error { fold.Forget(id.cluster, id.host); return nil }); err != nil {
		r.log.Error("host not forgotten", "host", id.host, "err", err)
	}
}

// apply makes a panic of the fold an error: one poisoned batch must not end the consumer.
func (r *Reader) apply(b *schema.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.warn("fold panicked", "host", b.Host, "err", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("fold panicked: %v", p)
		}
	}()
	return r.fold.Apply(b)
}

// warning is how often one message was logged and held back.
type warning struct {
	at   time.Time
	held int
}

const warnInterval = 10 * time.Second

// warn logs one message at most every ten seconds: a broken host must not fill the log.
func (r *Reader) warn(msg string, args ...any) {
	w := r.warnings[msg]
	if w == nil {
		w = &warning{}
		r.warnings[msg] = w
	}
	if now := time.Now(); now.Sub(w.at) >= warnInterval {
		if w.held > 0 {
			args = append(args, "held_back", w.held)
		}
		*w = warning{at: now}
		r.log.Warn(msg, args...)
		return
	}
	w.held++
}

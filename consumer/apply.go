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
func (c *Consumer) step(m jetstream.Msg, meta *jetstream.MsgMetadata) {
	start := time.Now()
	done, err := c.handle(m)
	if err != nil {
		c.deadLetter(m, meta, err)
	}
	c.timing.observe(done, &c.batch, time.Since(start))
	c.place.stored = meta.Timestamp
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.count(done, &c.batch)
	c.stats.Lag = meta.NumPending
	c.advance(meta.Sequence.Stream)
}

// handle takes one message through decode, proof and fold. An error is a message of no use.
func (c *Consumer) handle(m jetstream.Msg) (outcome, error) {
	b := &c.batch
	if err := c.decoder.Decode(m.Data(), b); err != nil {
		return outcomeInvalid, err
	}
	if b.Kind == schema.KindNone {
		return outcomeUnknown, nil
	}
	if b.Seq == 0 {
		return outcomeInvalid, errNoSeq
	}
	// A host may publish below its own subject only, and must not speak for another.
	if m.Subject() != schema.Subject(c.opts.Shard, b.Cluster, b.Host, b.Kind) {
		return outcomeInvalid, errElsewhere
	}
	if !c.prove(b) {
		return outcomeDuplicate, nil
	}
	if err := c.apply(b); err != nil {
		c.tell(b, 1)
		return outcomeRefused, err
	}
	return outcomeOK, nil
}

// prove reports whether the batch is new, and counts the ones before it that never came.
func (c *Consumer) prove(b *schema.Batch) bool {
	c.mu.Lock()
	s := c.runs.of(&b.Header)
	last := s.accept(&b.Header)
	c.mu.Unlock()
	if b.Seq <= last {
		return false
	}
	absent := b.Seq - last - 1
	reason := ""
	if absent > 0 && last == 0 {
		reason = c.unseenReason()
	}
	c.mu.Lock()
	c.stats.absent(reason, absent)
	c.hosts.saw(&b.Header, reason, absent)
	c.mu.Unlock()
	if absent > 0 {
		c.sayAbsent(b, reason, absent)
		c.tell(b, absent)
	}
	return true
}

func (c *Consumer) sayAbsent(b *schema.Batch, reason string, batches uint64) {
	if reason != "" {
		c.log.Debug("batches from before this reader", "host", b.Host, "kind", b.Kind.String(), "batches", batches, "reason", reason)
		return
	}
	c.warn("batches are missing", "host", b.Host, "kind", b.Kind.String(), "seq", b.Seq, "batches", batches)
}

// tell tells a fold that wants to know of batches that it will not see. Heartbeats hold no events.
func (c *Consumer) tell(b *schema.Batch, batches uint64) {
	fold, ok := c.fold.(lossAware)
	if !ok || b.Kind == schema.KindHost {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("fold panicked over a loss", "err", p, "stack", string(debug.Stack()))
		}
	}()
	fold.Lost(b.Cluster, b.Host, b.BootID, batches)
}

// apply makes a panic of the fold an error: one poisoned batch must not end the consumer.
func (c *Consumer) apply(b *schema.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.warn("fold panicked", "host", b.Host, "err", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("fold panicked: %v", p)
		}
	}()
	return c.fold.Apply(b)
}

// warning is how often one message was logged and held back.
type warning struct {
	at   time.Time
	held int
}

const warnInterval = 10 * time.Second

// warn logs one message at most every ten seconds: a broken host must not fill the log.
func (c *Consumer) warn(msg string, args ...any) {
	w := c.warnings[msg]
	if w == nil {
		w = &warning{}
		c.warnings[msg] = w
	}
	if now := time.Now(); now.Sub(w.at) >= warnInterval {
		if w.held > 0 {
			args = append(args, "held_back", w.held)
		}
		*w = warning{at: now}
		c.log.Warn(msg, args...)
		return
	}
	w.held++
}

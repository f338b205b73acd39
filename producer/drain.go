package producer

import (
	"errors"
	"fmt"
	"time"
)

// drain detaches all probes and reads until a round is empty: then every record has been read.
func (p *Producer) drain() {
	p.known.BeginDetach(bootTime())
	p.probes.Detach()
	for p.round() > 0 {
	}
}

// flush closes the last batches and waits for their acks, unless Run was aborted.
func (p *Producer) flush(aborted error) {
	p.batches.closeAll()
	deadline := time.Now()
	if aborted == nil {
		deadline = deadline.Add(p.cfg.DrainTimeout)
	}
	if p.awaitAcks(deadline) || p.spool.outbox != nil {
		p.heartbeat() // last: a consumer that has it has everything
		p.awaitAcks(deadline)
	}
}

// awaitAcks waits until all batches are acked; false when the deadline passed first.
func (p *Producer) awaitAcks(deadline time.Time) bool {
	for p.spool.level().batches > 0 {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// unsent reports batches that were not acked, and returns aborted with their loss.
func (p *Producer) unsent(aborted error) error {
	l := p.spool.level()
	if kept := l.outbox.Batches; kept > 0 {
		p.log.Info("NATS did not ack in time; batches stay in the outbox for the next start",
			"dir", p.cfg.Outbox, "batches", kept)
	}
	if l.unstored == 0 {
		return aborted
	}
	lost := fmt.Sprintf("%d batches (%d bytes) are lost", l.unstored, l.bytes)
	if aborted != nil {
		return fmt.Errorf("%w; %s", aborted, lost)
	}
	return errors.New("NATS did not ack in time: " + lost)
}

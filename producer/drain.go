package producer

import (
	"context"
	"errors"
	"fmt"
)

// drain detaches all probes and reads until a round is empty: then every record has been read.
func (p *Producer) drain() {
	p.noteLibraries()
	p.known.BeginDetach(bootTime())
	p.probes.Detach()
	for p.round() > 0 {
	}
	p.translator.through = p.translator.now
}

// noteLibraries keeps the list of attached libraries for the heartbeats after the end of the probes.
func (p *Producer) noteLibraries() {
	if libraries := p.probes.Libraries(); len(libraries) > 0 {
		p.libraries = libraries
	}
}

// flush closes the last batches and waits for their acks, unless Run was aborted.
func (p *Producer) flush(aborted error) {
	p.batches.closeAll()
	patience := p.cfg.DrainTimeout
	if aborted != nil {
		patience = 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.spool.awaitAcks(ctx) || p.spool.outbox != nil {
		p.heartbeat() // last: a consumer that has it has everything
		p.spool.awaitAcks(ctx)
	}
}

// awaitAcks waits until all batches are acked; false when ctx ended first.
func (s *spool) awaitAcks(ctx context.Context) bool {
	for s.level().batches > 0 {
		select {
		case <-s.idle:
		case <-ctx.Done():
			return false
		}
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

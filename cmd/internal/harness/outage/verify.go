package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// cutLimit is the longest time whose events a power cut may lose. docs/outbox.md says one to two seconds; this disk is
// emulated.
const cutLimit = 5 * time.Second

// tracedSymbols are the symbols whose calls become events with the producer's default features.
var tracedSymbols = func() map[string]bool {
	kinds, _ := config.DefaultProducer().Kinds()
	symbols := map[string]bool{}
	for i := range schema.Calls {
		if c := &schema.Calls[i]; slices.Contains(kinds, c.Kind) && c.Shape != schema.ShapeNone {
			symbols[c.Symbol] = true
		}
	}
	return symbols
}()

// comparison compares the programs' truth with the stream.
type comparison struct {
	*stored
	powerCut   bool
	programs   int
	inside     map[string]int // by boot: programs that ran entirely during the outage
	made       uint64         // calls that the stub counted
	matched    map[schema.ProcessID]*stub.Image
	cut        map[schema.ProcessID]bool // whose last calls the power cut may have lost
	cutCalls   uint64                    // calls that it lost
	incomplete int                       // programs that lost calls
}

// verify compares the stream with the programs' truth, and gputap-leak's state with both.
func (f *fleet) verify(ctx context.Context) error {
	// The connection may still be reconnecting.
	if err := cluster.Until(ctx, time.Minute, func() error {
		return reference.AllFolded(ctx, f.js, 1, fold.Leak)
	}); err != nil {
		return err
	}
	m := f.guest
	s := newStored(f.times, m.behind)
	if err := cluster.EveryMessage(ctx, f.js, schema.StreamName(0), func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		return s.add(m.Data(), meta.Timestamp)
	}); err != nil {
		return err
	}
	c := compare(s, m.programs, m.boots, f.powerCut)
	f.print(c)
	err := f.verifyLeak(ctx, c)
	return errors.Join(s.err(), err)
}

// compare finds every difference between the programs' truth and the stored events.
func compare(s *stored, programs map[programID]*program, boots []string, powerCut bool) *comparison {
	c := &comparison{
		stored: s, powerCut: powerCut, inside: map[string]int{},
		matched: map[schema.ProcessID]*stub.Image{}, cut: map[schema.ProcessID]bool{},
	}
	for id, p := range programs {
		c.program(id.boot, p)
	}
	for id := range s.processes {
		if c.matched[id] == nil {
			s.fault("process %d of boot %s is in the stream, but no program ran it", id.PID, id.BootID)
		}
	}
	for i, boot := range boots {
		if c.inside[boot] == 0 {
			s.fault("no program ran entirely during the outage in boot %d: use a longer -duration", i+1)
		}
	}
	if s.lost > 0 {
		s.fault("the producer counted %d lost events", s.lost)
	}
	for at, last := range s.last {
		steady := at.kind == schema.KindMemory || at.kind == schema.KindLaunch // copies are rare
		if short := s.times.reboot.Sub(last); powerCut && steady && at.boot == boots[0] && short > cutLimit {
			s.fault("the power cut lost %.1f s of %s events", short.Seconds(), at.kind)
		}
	}
	return c
}

// program compares one program.
func (c *comparison) program(boot string, p *program) {
	c.programs++
	local := func(at time.Time) time.Time { return at.Add(c.behind[boot]) } // by this machine's clock
	if p.Error != "" {
		c.fault("program %d (%s): %s", p.Number, p.Args, p.Error)
	}
	if local(p.Began).After(c.times.down) && !p.Ended.IsZero() && local(p.Ended).Before(c.times.up) {
		c.inside[boot]++
	}
	cut := c.powerCut && local(p.Began).Before(c.times.reboot) &&
		(p.Ended.IsZero() || local(p.Ended).After(c.times.reboot.Add(-cutLimit)))
	if p.Ended.IsZero() && !cut {
		c.fault("program %d (%s): its end was not reported", p.Number, p.Args)
	}
	before := c.cutCalls
	for i := range p.Images {
		c.image(boot, p, &p.Images[i], cut)
	}
	if c.cutCalls > before {
		c.incomplete++
	}
}

// image compares one process. A power cut may have lost its last calls, or all of them.
func (c *comparison) image(boot string, p *program, i *stub.Image, cut bool) {
	id, got := c.find(boot, i)
	c.matched[id], c.cut[id] = i, cut
	who := fmt.Sprintf("program %d (%s), pid %d", p.Number, p.Args, i.PID)
	want := map[string]uint64{}
	for symbol := range got.calls {
		want[symbol] = 0
	}
	for symbol, calls := range i.Calls {
		if _, seen := got.calls[symbol]; seen || tracedSymbols[symbol] {
			want[symbol] = calls.OK + calls.Failed
		}
	}
	for _, symbol := range slices.Sorted(maps.Keys(want)) {
		want, have := want[symbol], got.calls[symbol]
		c.made += want
		switch {
		case want == have:
		case cut && want > have:
			c.cutCalls += want - have
		case cut && p.Ended.IsZero(): // called after the last report
		default:
			c.fault("%s: %d calls of %s are in the stream, the stub counted %d", who, have, symbol, want)
		}
	}
	if got.exits != 1 && !cut {
		c.fault("%s: %d exits are in the stream", who, got.exits)
	}
	if len(got.calls) > 0 && (got.first.Before(p.Began) || !p.Ended.IsZero() && got.last.After(p.Ended)) {
		c.fault("%s ran from %s to %s, and its events are from %s to %s", who,
			clock(p.Began), clock(p.Ended), clock(got.first), clock(got.last))
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// find returns the process of an image: the latest process with its PID that started before the image was loaded.
func (s *stored) find(boot string, i *stub.Image) (id schema.ProcessID, p *traced) {
	p = &traced{}
	for other, q := range s.processes {
		if other.BootID == boot && other.PID == i.PID && uint64(other.Start) <= i.Loaded && other.Start >= id.Start {
			id, p = other, q
		}
	}
	return id, p
}

func (f *fleet) print(c *comparison) {
	s, boots := c.stored, f.guest.boots
	f.Say("truth: %d programs, %d calls; %d and %d programs ran entirely during the outage, before and after the %s",
		c.programs, c.made, c.inside[boots[0]], c.inside[boots[1]], f.interruption())
	f.Say("stream: %d batches, %d events of %d processes, %d of them from during the outage; "+
		"%d batches were stored twice; %d events lost",
		s.batches, s.events, len(s.processes), s.during, s.twice, s.lost)
	f.Say("outbox: %d batches, %d events, %d bytes, drained in %.2f s",
		s.kept.batches, s.kept.events, s.kept.bytes, s.kept.drained.Sub(s.times.up).Seconds())
	if !f.powerCut {
		return
	}
	for at, last := range s.last {
		if at.boot == boots[0] {
			f.Say("the last %s event of the first boot is from %.2f s before the cut",
				at.kind, s.times.reboot.Sub(last).Seconds())
		}
	}
	f.Say("the power cut lost %d calls of %d programs", c.cutCalls, c.incomplete)
}

// verifyLeak checks that gputap-leak, which ran all the time, has folded everything: its committed state is right,
// and equals that of an undisturbed reader byte for byte.
func (f *fleet) verifyLeak(ctx context.Context, c *comparison) error {
	if err := f.leak.Stop(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	reader, err := reference.Compare(ctx, f.js, fold.Leak, 0, f.Path("leak.state"))
	if err != nil {
		return err
	}
	missing, lost := reader.Stats().Missing, reader.Lost()
	if missing > 0 || lost != [schema.NumLosses]uint64{} {
		err = fmt.Errorf("gputap-leak: %d batches missing, events lost by cause: %v", missing, lost)
	}
	r := reader.Fold.(*fold.Memory).Tracker.Report()
	evidence := map[string]int{}
	for i := range r.Processes {
		evidence[r.Processes[i].Evidence]++
	}
	f.Say("gputap-leak: %d batches missing; %d processes, %v; %d bytes unfreed at exit",
		missing, len(r.Processes), evidence, r.Totals.UnfreedBytes)
	c.leak(&r)
	return err
}

// leak checks that the reported processes are those that ran, that all have ended with complete evidence, and that
// their unfreed bytes equal the stub's. The evidence of processes that the power cut ended is gap.
func (c *comparison) leak(r *leak.Report) {
	found := map[schema.ProcessID]bool{}
	for i := range r.Processes {
		p := &r.Processes[i]
		found[p.ID] = true
		want, evidence := c.matched[p.ID], "complete"
		if c.cut[p.ID] && c.processes[p.ID].exits == 0 {
			evidence = "gap"
		}
		if want == nil || !p.Ended || p.Evidence != evidence || !c.cut[p.ID] && p.UnfreedBytes != want.LiveBytes {
			c.fault("gputap-leak: process %d of boot %s: ended %t, %s, %d bytes unfreed; the stub: %+v",
				p.ID.PID, p.ID.BootID, p.Ended, p.Evidence, p.UnfreedBytes, want)
		}
	}
	for id, p := range c.processes {
		if p.memory && !found[id] {
			c.fault("gputap-leak does not report process %d of boot %s", id.PID, id.BootID)
		}
	}
	if n := r.Counters; n.UnmatchedFrees+n.UnseenEnds+n.UnknownHandles+n.UnknownOps > 0 {
		c.fault("gputap-leak: %+v", n)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
	"github.com/gputap/gputap/cmd/internal/harness/stub"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/shard"
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
	stored     *stored
	powerCut   bool
	programs   int
	inside     map[string]int // by boot: programs that ran entirely during the outage
	calls      uint64         // counted by the stub
	matched    map[schema.ProcessID]*stub.Image
	cut        map[schema.ProcessID]bool // whose last calls the power cut may have lost
	cutCalls   uint64                    // calls that it lost
	incomplete int                       // programs that lost calls
}

// verify compares the stream with the programs' truth, and gputap-leak's state with both.
func verify(ctx context.Context, f *fleet, m *machine, t times, powerCut bool) error {
	s, err := readStream(ctx, f.js, t, m.behind)
	if err != nil {
		return err
	}
	c := compare(s, m.programs, m.boots, powerCut)
	c.print(f, m)
	if powerCut {
		c.printCut(f, m.boots[0])
	}
	return errors.Join(s.err(), verifyLeak(ctx, f, c))
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
	s, t := c.stored, c.stored.times
	c.programs++
	local := func(at time.Time) time.Time { return at.Add(s.behind[boot]) } // by this machine's clock
	if p.Error != "" {
		s.fault("program %d (%s): %s", p.Number, p.Args, p.Error)
	}
	if local(p.Began).After(t.down) && !p.Ended.IsZero() && local(p.Ended).Before(t.up) {
		c.inside[boot]++
	}
	cut := c.powerCut && local(p.Began).Before(t.reboot) &&
		(p.Ended.IsZero() || local(p.Ended).After(t.reboot.Add(-cutLimit)))
	if p.Ended.IsZero() && !cut {
		s.fault("program %d (%s): its end was not reported", p.Number, p.Args)
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
	s := c.stored
	id, got := s.find(boot, i)
	c.matched[id], c.cut[id] = i, cut
	if got == nil {
		got = &traced{}
	}
	symbols := map[string]bool{}
	for symbol := range i.Calls {
		symbols[symbol] = tracedSymbols[symbol]
	}
	for symbol := range got.calls {
		symbols[symbol] = true
	}
	for _, symbol := range slices.Sorted(maps.Keys(symbols)) {
		if !symbols[symbol] {
			continue
		}
		want, have := i.Calls[symbol], got.calls[symbol]
		c.calls += want
		switch {
		case want == have:
		case cut && want > have:
			c.cutCalls += want - have
		case cut && p.Ended.IsZero(): // called after the last report
		default:
			s.fault("program %d (%s), pid %d: %d calls of %s are in the stream, the stub counted %d",
				p.Number, p.Args, i.PID, have, symbol, want)
		}
	}
	if got.exits != 1 && !cut {
		s.fault("program %d (%s), pid %d: %d exits are in the stream", p.Number, p.Args, i.PID, got.exits)
	}
	if len(got.calls) > 0 && (got.first.Before(p.Began) || !p.Ended.IsZero() && got.last.After(p.Ended)) {
		s.fault("program %d (%s), pid %d ran from %s to %s, and its events are from %s to %s",
			p.Number, p.Args, i.PID, clock(p.Began), clock(p.Ended), clock(got.first), clock(got.last))
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// find returns the process of an image: the latest process with its PID that started before the image was loaded.
func (s *stored) find(boot string, i *stub.Image) (id schema.ProcessID, p *traced) {
	for other, q := range s.processes {
		if other.BootID == boot && other.PID == i.PID && uint64(other.Start) <= i.Loaded && other.Start >= id.Start {
			id, p = other, q
		}
	}
	return id, p
}

// printCut prints how much the power cut lost.
func (c *comparison) printCut(f *fleet, boot string) {
	for at, last := range c.stored.last {
		if at.boot == boot {
			f.Say("the last %s event of the first boot is from %.2f s before the cut",
				at.kind, c.stored.times.reboot.Sub(last).Seconds())
		}
	}
	f.Say("the power cut lost %d calls of %d programs", c.cutCalls, c.incomplete)
}

func (c *comparison) print(f *fleet, m *machine) {
	s := c.stored
	batches := 0
	for _, sums := range s.sums {
		batches += len(sums)
	}
	f.Say("truth: %d programs, %d calls; %d and %d programs ran entirely during the outage, before and after the %s",
		c.programs, c.calls, c.inside[m.boots[0]], c.inside[m.boots[1]], options{powerCut: c.powerCut}.interruption())
	f.Say("stream: %d batches, %d events of %d processes, %d of them from during the outage; "+
		"%d batches were stored twice; %d events lost", batches, s.events, len(s.processes), s.during, s.twice, s.lost)
	f.Say("outbox: %d batches, %d events, %d bytes, drained in %.2f s",
		s.kept.batches, s.kept.events, s.kept.bytes, s.kept.drained.Sub(s.times.up).Seconds())
	for i, boot := range m.boots {
		f.Say("clock of boot %d: at most %.2f s behind this machine's", i+1, s.behind[boot].Seconds())
	}
}

// verifyLeak checks that gputap-leak, which ran all the time, has folded everything: its committed state is right,
// and equals that of an undisturbed reader byte for byte.
func verifyLeak(ctx context.Context, f *fleet, c *comparison) error {
	tracker := fold.Leak.New().(*leak.Tracker)
	reader := consumer.NewReader(consumer.ReaderOptions{}, f.js, tracker, slog.New(slog.DiscardHandler))
	var saved shard.SavedState
	if err := cluster.Until(ctx, startupLimit, func() (err error) {
		if saved, err = shard.Saved(ctx, f.js, "leak", 0); err != nil {
			return err
		}
		end, err := reader.Folded(ctx, saved.Sequence)
		if err == nil && !end {
			err = fmt.Errorf("gputap-leak has committed up to %d only", saved.Sequence)
		}
		return err
	}); err != nil {
		return err
	}
	page, err := scrape.Get(f.page+"/metrics", "gputap_consumer_")
	if err != nil {
		return err
	}
	if err := f.leak.Stop(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	state, err := reference.State(ctx, reader, tracker, saved.Sequence)
	if err != nil {
		return err
	}
	var faults []error
	if !bytes.Equal(saved.State, state) {
		faults = append(faults,
			fmt.Errorf("gputap-leak's committed state (%d bytes) differs from an undisturbed reader's (%d bytes)",
				len(saved.State), len(state)))
	}
	missing, noMissing := page.Require("gputap_consumer_gap_batches_total")
	lost, noLost := page.Require("gputap_consumer_producer_lost_events_total")
	faults = append(faults, noMissing, noLost)
	if missing > 0 || lost > 0 {
		faults = append(faults, fmt.Errorf("gputap-leak: %.0f batches missing, %.0f events lost", missing, lost))
	}
	r := tracker.Report()
	faults = append(faults, c.leak(&r))
	evidence := map[string]int{}
	for i := range r.Processes {
		evidence[r.Processes[i].Evidence]++
	}
	f.Say("gputap-leak: %.0f batches missing, %.0f events lost; %d processes, %v; %d bytes unfreed at exit",
		missing, lost, len(r.Processes), evidence, r.Totals.UnfreedBytes)
	return errors.Join(faults...)
}

// leak checks that the reported processes are those that ran, that all have ended with complete evidence, and that
// their unfreed bytes equal the stub's. The evidence of processes that the power cut ended is gap.
func (c *comparison) leak(r *leak.Report) error {
	var faults []error
	found := map[schema.ProcessID]bool{}
	for i := range r.Processes {
		p := &r.Processes[i]
		found[p.ID] = true
		want, evidence := c.matched[p.ID], "complete"
		if c.cut[p.ID] && c.stored.processes[p.ID].exits == 0 {
			evidence = "gap"
		}
		if want == nil || !p.Ended || p.Evidence != evidence || !c.cut[p.ID] && p.UnfreedBytes != want.Live {
			faults = append(faults,
				fmt.Errorf("gputap-leak: process %d of boot %s: ended %t, %s, %d bytes unfreed; the stub: %+v",
					p.ID.PID, p.ID.BootID, p.Ended, p.Evidence, p.UnfreedBytes, want))
		}
	}
	for id, p := range c.stored.processes {
		if p.memory && !found[id] {
			faults = append(faults, fmt.Errorf("gputap-leak does not report process %d of boot %s", id.PID, id.BootID))
		}
	}
	if n := r.Counters; n.UnmatchedFrees+n.UnseenEnds+n.UnknownHandles+n.UnknownOps > 0 {
		faults = append(faults, fmt.Errorf("gputap-leak: %+v", n))
	}
	return errors.Join(faults[:min(len(faults), 20)]...)
}

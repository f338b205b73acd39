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

	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/cmd/internal/harness/stub"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// cutLimit is the most that a power cut may take: docs/outbox.md says one to two seconds, and this disk is an emulated one.
const cutLimit = 5 * time.Second

// watched are the symbols whose calls are events of the kinds that the producer watches.
var watched = func() map[string]bool {
	kinds, _ := config.DefaultProducer().Kinds()
	w := map[string]bool{}
	for i := range schema.Calls {
		if c := &schema.Calls[i]; slices.Contains(kinds, c.Kind) && c.Shape != schema.ShapeNone {
			w[c.Symbol] = true
		}
	}
	return w
}()

// comparison is what came of comparing the programs' truth with the stream.
type comparison struct {
	stored     *stored
	powerCut   bool
	programs   int
	inside     map[string]int // by boot: programs that ran from begin to end during the outage
	calls      uint64         // that the stub counted
	matched    map[schema.ProcessID]*stub.Image
	cut        map[schema.ProcessID]bool // whose last calls a power cut may have taken
	taken      uint64                    // calls that it took
	incomplete int                       // programs that lack them
}

// verify compares the stream with the programs' truth, and what gputap-leak made of it with both.
func verify(ctx context.Context, f *fleet, m *machine, t times, powerCut bool) error {
	s, err := readStream(ctx, f.js, t, m.behind)
	if err != nil {
		return err
	}
	c := compare(s, m.programs, m.boots, powerCut)
	c.say(f, m)
	if powerCut {
		c.sayCut(f, m.boots[0])
	}
	return errors.Join(s.err(), verifyLeak(ctx, f, c))
}

// compare finds every difference between the programs' truth and what is stored.
func compare(s *stored, programs map[programID]*program, boots []string, powerCut bool) *comparison {
	c := &comparison{stored: s, powerCut: powerCut, inside: map[string]int{}, matched: map[schema.ProcessID]*stub.Image{}, cut: map[schema.ProcessID]bool{}}
	for id, p := range programs {
		c.program(id.boot, p)
	}
	for id := range s.processes {
		if c.matched[id] == nil {
			s.fault("process %d of boot %s: nobody ran it", id.PID, id.BootID)
		}
	}
	for i, boot := range boots {
		if c.inside[boot] == 0 {
			s.fault("no program ran wholly during the outage in boot %d: a longer -duration is wanted", i+1)
		}
	}
	if s.lost > 0 {
		s.fault("the producer counted %d lost events", s.lost)
	}
	for at, last := range s.last {
		steady := at.kind == schema.KindMemory || at.kind == schema.KindLaunch // copies come now and then
		if short := s.times.reboot.Sub(last); powerCut && steady && at.boot == boots[0] && short > cutLimit {
			s.fault("the power cut took %.1f s of %s events", short.Seconds(), at.kind)
		}
	}
	return c
}

// program compares one program.
func (c *comparison) program(boot string, p *program) {
	s, t := c.stored, c.stored.times
	c.programs++
	ours := func(at time.Time) time.Time { return at.Add(s.behind[boot]) }
	if p.Error != "" {
		s.fault("program %d (%s): %s", p.Number, p.Args, p.Error)
	}
	if ours(p.Began).After(t.down) && !p.Ended.IsZero() && ours(p.Ended).Before(t.up) {
		c.inside[boot]++
	}
	cut := c.powerCut && ours(p.Began).Before(t.reboot) && (p.Ended.IsZero() || ours(p.Ended).After(t.reboot.Add(-cutLimit)))
	if p.Ended.IsZero() && !cut {
		s.fault("program %d (%s): its end was not told", p.Number, p.Args)
	}
	before := c.taken
	for i := range p.Images {
		c.image(boot, p, &p.Images[i], cut)
	}
	if c.taken > before {
		c.incomplete++
	}
}

// image compares one process. A power cut may have taken its last calls, and all of it.
func (c *comparison) image(boot string, p *program, i *stub.Image, cut bool) {
	s := c.stored
	id, got := s.find(boot, i)
	c.matched[id], c.cut[id] = i, cut
	if got == nil {
		got = &seen{}
	}
	symbols := map[string]bool{}
	for symbol := range i.Calls {
		symbols[symbol] = watched[symbol]
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
			c.taken += want - have
		case cut && p.Ended.IsZero(): // called after it was told for the last time
		default:
			s.fault("program %d (%s), pid %d: %d calls of %s are in the stream, the stub counted %d", p.Number, p.Args, i.PID, have, symbol, want)
		}
	}
	if got.exits != 1 && !cut {
		s.fault("program %d (%s), pid %d: %d ends are in the stream", p.Number, p.Args, i.PID, got.exits)
	}
	if len(got.calls) > 0 && (got.first.Before(p.Began) || !p.Ended.IsZero() && got.last.After(p.Ended)) {
		s.fault("program %d (%s), pid %d: ran from %s to %s, and its events are from %s to %s", p.Number, p.Args, i.PID, clock(p.Began), clock(p.Ended), clock(got.first), clock(got.last))
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// find is the process of an image: of those with its PID the last one that was there when it was loaded.
func (s *stored) find(boot string, i *stub.Image) (id schema.ProcessID, p *seen) {
	for other, q := range s.processes {
		if other.BootID == boot && other.PID == i.PID && uint64(other.Start) <= i.Loaded && other.Start >= id.Start {
			id, p = other, q
		}
	}
	return id, p
}

// sayCut says how much the power cut took.
func (c *comparison) sayCut(f *fleet, boot string) {
	for at, last := range c.stored.last {
		if at.boot == boot {
			f.say("the last %s event of the first boot is from %.2f s before the cut", at.kind, c.stored.times.reboot.Sub(last).Seconds())
		}
	}
	f.say("the power cut took %d calls of %d programs", c.taken, c.incomplete)
}

func (c *comparison) say(f *fleet, m *machine) {
	s := c.stored
	batches := 0
	for _, sums := range s.sums {
		batches += len(sums)
	}
	f.say("truth: %d programs, %d calls; %d and %d programs ran wholly during the outage, before and after the %s", c.programs, c.calls,
		c.inside[m.boots[0]], c.inside[m.boots[1]], options{powerCut: c.powerCut}.middle())
	f.say("stream: %d batches, %d events of %d processes, %d of them from during the outage; %d batches were stored twice; %d events lost", batches,
		s.events, len(s.processes), s.during, s.twice, s.lost)
	f.say("outbox: %d batches, %d events, %d bytes, drained in %.2f s", s.kept.batches, s.kept.events, s.kept.bytes, s.kept.drained.Sub(s.times.up).Seconds())
	for i, boot := range m.boots {
		f.say("clock of boot %d: at most %.2f s behind ours", i+1, s.behind[boot].Seconds())
	}
}

// verifyLeak holds that gputap-leak, which was there all the time, has folded everything: what it committed is, byte for byte, what an
// undisturbed reader makes of the stream, and right.
func verifyLeak(ctx context.Context, f *fleet, c *comparison) error {
	fold := leak.New(leak.Config{KeepEnded: config.DefaultLeakCommand().Leak.KeepEnded})
	reader := consumer.NewReader(consumer.ReaderOptions{}, f.js, fold, slog.New(slog.DiscardHandler))
	var saved consumer.SavedState
	if err := until(ctx, healthy, func() (err error) {
		if saved, err = consumer.Saved(ctx, f.js, "leak", 0); err != nil {
			return err
		}
		end, err := reader.Folded(ctx, saved.Sequence)
		if err == nil && !end {
			err = fmt.Errorf("gputap-leak stands at %d", saved.Sequence)
		}
		return err
	}); err != nil {
		return err
	}
	page, err := f.get("/metrics")
	if err != nil {
		return err
	}
	_ = f.leak.Process.Signal(syscall.SIGTERM)
	if err := f.leak.Wait(); err != nil {
		return fmt.Errorf("gputap-leak: %w", err)
	}
	state, err := reference.State(ctx, reader, fold, saved.Sequence)
	if err != nil {
		return err
	}
	var faults []error
	if !bytes.Equal(saved.State, state) {
		faults = append(faults, fmt.Errorf("what gputap-leak committed (%d bytes) is not what an undisturbed reader makes of the stream (%d bytes)", len(saved.State), len(state)))
	}
	missing, noMissing := sum(page, "gputap_consumer_gap_batches_total")
	lost, noLost := sum(page, "gputap_consumer_producer_lost_events_total")
	faults = append(faults, noMissing, noLost)
	if missing > 0 || lost > 0 {
		faults = append(faults, fmt.Errorf("gputap-leak: %.0f batches missing, %.0f events lost", missing, lost))
	}
	r := fold.Report()
	faults = append(faults, c.leak(&r))
	evidence := map[string]int{}
	for i := range r.Processes {
		evidence[r.Processes[i].Evidence]++
	}
	f.say("gputap-leak: %.0f batches missing, %.0f events lost; %d processes, %v; %d bytes unfreed at exit", missing, lost, len(r.Processes), evidence, r.Totals.UnfreedBytes)
	return errors.Join(faults...)
}

// leak holds that the fold's processes are those that ran, that all have ended and are complete, and that what they left is what
// the stub says. Those that a power cut ended have a gap.
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
			faults = append(faults, fmt.Errorf("gputap-leak: process %d of boot %s: ended %t, %s, %d bytes unfreed; the stub: %+v", p.ID.PID, p.ID.BootID, p.Ended, p.Evidence, p.UnfreedBytes, want))
		}
	}
	for id, p := range c.stored.processes {
		if p.memory && !found[id] {
			faults = append(faults, fmt.Errorf("gputap-leak does not know process %d of boot %s", id.PID, id.BootID))
		}
	}
	if n := r.Counters; n.UnmatchedFrees+n.UnseenEnds+n.UnknownHandles+n.UnknownOps > 0 {
		faults = append(faults, fmt.Errorf("gputap-leak: %+v", n))
	}
	return errors.Join(faults[:min(len(faults), 20)]...)
}

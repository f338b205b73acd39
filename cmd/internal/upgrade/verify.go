package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// verify compares the streams and the saved states with the programs' truth.
func verify(ctx context.Context, f *fleet) error {
	numbers, err := f.shards(ctx)
	if err != nil {
		return err
	}
	s := newStored()
	for _, shard := range numbers {
		if err := s.read(ctx, f.js, shard); err != nil {
			return err
		}
	}
	v := views{leak: map[schema.ProcessID]*leak.Process{}, launch: map[schema.ProcessID]*launch.Process{}}
	if err := takeUp(ctx, f, &v); err != nil {
		return err
	}
	c := compare(s, f.windows, f.programs.all, v)
	c.say(f)
	c.oldest(f)
	return errors.Join(s.err(), f.noDeadLetters(ctx), f.undisturbed(ctx))
}

// comparison is what came of comparing.
type comparison struct {
	*stored
	windows []window
	views   views

	ours   map[schema.ProcessID]bool
	others int // processes of this machine that are none of the programs': their events may be lost

	inside   []int          // by window: processes of programs that ran within it
	calls    []uint64       // by window: those of them
	across   map[string]int // processes that did not, by leak's evidence
	wrongly  map[string]int // of them, called complete because of an older release that was ending
	unended  int            // of them, told as running though they have ended
	unendedB uint64         // what they are told to hold
}

func compare(s *stored, windows []window, programs []*program, v views) *comparison {
	c := &comparison{
		stored: s, windows: windows, views: v, ours: map[schema.ProcessID]bool{}, inside: make([]int, len(windows)), calls: make([]uint64, len(windows)), across: map[string]int{}, wrongly: map[string]int{},
	}
	for _, p := range programs {
		at := c.window(p)
		for i := range p.images {
			if at >= 0 {
				c.within(p, &p.images[i], at)
			} else {
				c.over(p, &p.images[i])
			}
		}
	}
	for i, w := range windows {
		if c.inside[i] == 0 {
			s.fault("no program ran from begin to end under the producer of %s: a longer -stage is wanted", w.release.name)
		}
	}
	for id := range s.processes {
		if !c.ours[id] {
			c.others++
		}
	}
	for run, lost := range s.lost {
		if lost > 0 && c.others == 0 { // of ours nothing is: that was compared
			s.fault("run %d: the producer counted %d lost events", run, lost)
		}
	}
	if len(s.runs) != len(windows) {
		s.fault("%d runs of producers are in the streams, want %d", len(s.runs), len(windows))
	}
	if c.across["gap"]+c.across["late"] == 0 {
		s.fault("no program ran across a change: a longer -stage is wanted")
	}
	return c
}

// within compares a process that one producer saw from begin to end: all of it must be told, and be called complete.
func (c *comparison) within(p *program, i *stub.Image, at int) {
	fault := func(format string, args ...any) {
		c.fault("%s, pid %d, under the producer of %s: %w", p.name, i.PID, c.windows[at].release.name, fmt.Errorf(format, args...))
	}
	c.inside[at]++
	id, got := c.find(i.PID, i.Loaded)
	c.ours[id] = true
	if got == nil {
		fault("nothing of it is in the streams")
		return
	}
	for _, symbol := range slices.Sorted(maps.Keys(i.Calls)) {
		if !c.windows[at].release.watched[symbol] {
			continue
		}
		c.calls[at] += i.Calls[symbol]
		if got.calls[symbol] != i.Calls[symbol] {
			fault("%d calls of %s are in the streams, the stub counted %d", got.calls[symbol], symbol, i.Calls[symbol])
		}
		if allocates[symbol] && got.bytes[symbol] != i.Bytes[symbol] {
			fault("%d bytes of %s are in the streams, the stub counted %d", got.bytes[symbol], symbol, i.Bytes[symbol])
		}
	}
	if got.exits != 1 {
		fault("%d ends are in the streams", got.exits)
	}
	if held := c.views.leak[id]; held == nil && got.memory {
		fault("leak does not know it")
	} else if held != nil {
		if err := right(held, i, c.windows[at].release); err != nil || held.Evidence != "complete" {
			fault("leak: %s: %w", held.Evidence, err)
		}
	}
	if err := c.launches(id, i); err != nil && p.name != every { // which records launches into graphs
		fault("launch: %w", err)
	}
}

// allocates are symbols whose bytes the stub counts as events have them.
var allocates = func() map[string]bool {
	symbols := map[string]bool{}
	for i := range schema.Calls {
		switch c := &schema.Calls[i]; c.Op {
		case schema.OpAlloc, schema.OpCreate, schema.OpCopy, schema.OpCopyAsync:
			symbols[c.Symbol] = true
		}
	}
	return symbols
}()

// right is nil when leak tells of a process what the stub counted.
func right(held *leak.Process, i *stub.Image, r *release) error {
	if !held.Ended || held.UnfreedBytes != i.Live || held.LiveBytes != 0 {
		return fmt.Errorf("ended %t, %d bytes live, %d unfreed; the stub counted %d unfreed", held.Ended, held.LiveBytes, held.UnfreedBytes, i.Live)
	}
	for _, call := range held.Calls {
		if n := call.OK + call.Failed + call.Recorded; r.watched[call.Symbol] && n != i.Calls[call.Symbol] {
			return fmt.Errorf("%d calls of %s, the stub counted %d", n, call.Symbol, i.Calls[call.Symbol])
		}
	}
	return nil
}

// launches is nil when launch tells of each kernel of a process what the stub counted.
func (c *comparison) launches(id schema.ProcessID, i *stub.Image) error {
	got := map[string]uint64{}
	if p := c.views.launch[id]; p != nil {
		for _, f := range p.Funcs {
			got[f.Mangled] += f.Launches
		}
	}
	if !maps.Equal(got, i.Kernels) {
		return fmt.Errorf("%v, the stub counted %v", got, i.Kernels)
	}
	return nil
}

// over compares a process that ran while no producer did: less may be told, and it is called complete only when it is.
func (c *comparison) over(p *program, i *stub.Image) {
	id, got := c.find(i.PID, i.Loaded)
	c.ours[id] = true
	if got == nil {
		c.across["unseen"]++
		return
	}
	for symbol, n := range got.calls {
		if n > i.Calls[symbol] {
			c.fault("%s, pid %d, across a change: %d calls of %s are in the streams, the stub counted %d", p.name, i.PID, n, symbol, i.Calls[symbol])
		}
	}
	held := c.views.leak[id]
	if held == nil {
		c.across["unknown to leak"]++
		return
	}
	last := c.windows[len(c.windows)-1]
	if !held.Ended && p.ended.After(last.stopped) {
		c.across["running when the last producer ended"]++
		return
	}
	c.across[held.Evidence]++
	today := last.release
	if err := right(held, i, today); err != nil && held.Evidence == "complete" {
		if by := c.endedWith(p); by != nil && by != today { // a fault of that release, which nobody can mend any more
			c.wrongly[by.name]++
		} else {
			c.fault("%s, pid %d, across a change: leak calls it complete: %w", p.name, i.PID, err)
		}
	}
	if !held.Ended {
		if p.ended.Before(last.settled) { // nobody saw its end, but the last producer did not find it
			c.fault("%s, pid %d, ended before the producer of %s was there, and is told as running", p.name, i.PID, today.name)
		}
		c.unended++
		c.unendedB += held.LiveBytes
	}
}

// oldest compares what the oldest gputap-leak said last of programs that one producer, whichever, saw from begin to end.
func (c *comparison) oldest(f *fleet) {
	right, wrong := make([]int, len(c.windows)), 0
	for _, p := range f.programs.all {
		at := c.window(p)
		for i := range p.images {
			row, shown := f.oldRows[p.images[i].PID]
			if at < 0 || !shown || row.state != "ended" {
				continue
			}
			if want := app.Bytes(p.images[i].Live); row.unfreed == want && row.evidence == "complete" {
				right[at]++
			} else if wrong++; p.name != every { // of calls that it does not know it cannot tell
				c.fault("%s, pid %d: the oldest gputap-leak said %s, %s unfreed; the stub counted %s", p.name, p.images[i].PID, row.evidence, row.unfreed, want)
			}
		}
	}
	f.say("the oldest gputap-leak showed %d processes last; right of those that the producer of each release saw from begin to end: %v, wrong: %d", len(f.oldRows), right, wrong)
}

// window is that in which a program ran from begin to end; -1: none.
func (c *comparison) window(p *program) int {
	return slices.IndexFunc(c.windows, func(w window) bool { return p.began.After(w.settled) && p.ended.Before(w.stopped) })
}

// endedWith is the release whose producer was ending when a program did.
func (c *comparison) endedWith(p *program) *release {
	for _, w := range c.windows {
		if p.ended.After(w.stopped) && p.ended.Before(w.gone) {
			return w.release
		}
	}
	return nil
}

func (c *comparison) say(f *fleet) {
	for i, w := range c.windows {
		if i < len(c.runs) {
			f.say("producer of %s: %d batches, all stored and in order, %d events lost; %d processes from begin to end under it, %d calls of them, as the stub counted, in %s",
				w.release.name, c.batches[c.runs[i]], c.lost[c.runs[i]], c.inside[i], c.calls[i], w.stopped.Sub(w.settled).Round(time.Second))
		}
	}
	f.say("processes that ran while no producer did, by leak's evidence: %v; %d of them are told as running with %d bytes, and have ended", c.across, c.unended, c.unendedB)
	if len(c.wrongly) > 0 {
		f.say("of them are called complete and are not, because an older producer told their end when it had ceased to see their calls: %v", c.wrongly)
	}
	id, _ := c.find(f.held.images[0].PID, f.held.images[0].Loaded)
	if held := c.views.leak[id]; held != nil {
		f.say("the program that held memory all the time: %s, ended %t, %d bytes unfreed; the stub counted %d", held.Evidence, held.Ended, held.UnfreedBytes, f.held.images[0].Live)
	}
	f.say("%d batches were stored twice; %d processes in the streams are none of the programs'", c.twice, c.others)
}

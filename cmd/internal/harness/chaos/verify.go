package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

// rest lets the fleet heal, the simulators end, and the consumers fold what is left.
func (f *fleet) rest(ctx context.Context) error {
	f.say("rest")
	for _, p := range slices.Concat(f.nodes, f.consumers, f.simulators) {
		p.Signal(syscall.SIGCONT)
		if err := alive(p); err != nil {
			return err
		}
	}
	if err := cluster.Until(ctx, 2*time.Minute, func() error { return f.healthy(ctx) }); err != nil {
		return err
	}
	for _, p := range f.simulators {
		if err := f.finish(ctx, p); err != nil {
			return err
		}
	}
	f.say("everything is published")
	if err := cluster.Until(ctx, 3*time.Minute, func() error { return f.folded(ctx) }); err != nil {
		return err
	}
	for _, p := range f.consumers {
		if err := end(p); err != nil {
			return err
		}
	}
	f.say("everything is folded and committed")
	return nil
}

// finish ends a simulator when everything is published. One that was only just started again may still be reading its log
// then: it is started once more.
func (f *fleet) finish(ctx context.Context, p *cluster.Process) error {
	for try := 1; ; try++ {
		if err := p.End(syscall.SIGINT, 2*time.Minute); err != nil {
			return err
		}
		if p.Err() == nil {
			return nil
		}
		if try == 3 {
			return fmt.Errorf("%s: %w: not everything was published", p.Name, p.Err())
		}
		if err := f.startAgain(ctx, p); err != nil {
			return err
		}
		f.pause(ctx, time.Duration(try)*30*time.Second)
	}
}

// healthy is nil when every shard's stream has a leader that answers.
func (f *fleet) healthy(ctx context.Context) error {
	for shard := range f.shards {
		if _, err := f.js.Stream(ctx, schema.StreamName(shard)); err != nil {
			return fmt.Errorf("stream of shard %d: %w", shard, err)
		}
	}
	return nil
}

// folded is nil when the committed state of every fold and shard goes to the end of its stream.
func (f *fleet) folded(ctx context.Context) error {
	for shard := range f.shards {
		if err := reference.Folded(ctx, f.js, shard); err != nil {
			return err
		}
	}
	return nil
}

// kindsOf says what each fold reads: its own kinds, and heartbeats.
var kindsOf = map[string][]schema.Kind{
	"leak":      {schema.KindMemory, schema.KindHost},
	"launch":    {schema.KindLaunch, schema.KindHost},
	"bandwidth": {schema.KindCopy, schema.KindSync, schema.KindHost},
	"anomaly":   {schema.KindMemory, schema.KindHost},
}

// mostFaults of one sort are told.
const mostFaults = 3

// verify compares streams with the simulators' logs, what was folded with those logs too, and what was committed with what an
// undisturbed reader makes of the streams.
func (f *fleet) verify(ctx context.Context) error {
	faults := []error{f.summary(), f.fence.err()}
	t, err := readTruth(f.logOf(0), f.logOf(1))
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	again, err := f.verifyStreams(ctx, t)
	if err != nil {
		return errors.Join(append(faults, err)...) // of streams that are wrong nothing else can be right
	}
	repeated := uint64(0)
	for _, kinds := range again {
		for _, n := range kinds {
			repeated += n
		}
	}
	f.say("%d batches of the simulators are in the streams, in order, %d of them again; %d were withheld; %d processes", t.published, repeated, t.kept, len(t.processes))
	faults = append(faults, f.vacuous(t, repeated), f.verifyLetters(ctx), f.verifyAlerts(ctx, t)) // letters first: readers copy what is not there
	equal, bytesOfStates := 0, 0
	var unequal []error
	for shard := range f.shards {
		for _, name := range consumers {
			n, err := f.verifyState(ctx, t, again, name, shard)
			if err != nil {
				unequal = append(unequal, err)
				continue
			}
			equal++
			bytesOfStates += n
		}
	}
	f.say("%d of %d states equal those of an undisturbed run (%d bytes), which counted what was published", equal, f.shards*len(consumers), bytesOfStates)
	if n := len(unequal); n > mostFaults {
		unequal = append(unequal[:mostFaults], fmt.Errorf("and %d more", n-mostFaults))
	}
	faults = append(faults, unequal...)
	err = f.verifyViews(ctx, t)
	if err == nil {
		f.say("the committed states show of each process what was published of it")
	}
	return errors.Join(append(faults, err)...)
}

// verifyState compares a committed state, and what the reader counted that it is compared with.
func (f *fleet) verifyState(ctx context.Context, t *truth, again repeats, name string, shard int) (int, error) {
	saved, err := consumer.Saved(ctx, f.js, name, shard)
	if err != nil {
		return 0, err
	}
	fold := reference.Folds[name]()
	reader := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, f.js, fold, slog.New(slog.DiscardHandler))
	want, err := reference.State(ctx, reader, fold, saved.Sequence)
	if err != nil {
		return 0, err
	}
	err = t.compareStats(reader, again[shard], name, shard, f.shards)
	if !bytes.Equal(saved.State, want) {
		path := filepath.Join(f.dir, fmt.Sprintf("%s-%d.state", name, shard))
		err = errors.Join(err, fmt.Errorf("%s of shard %d: the committed state is not that of an undisturbed run, from %s on: %s and %[4]s.undisturbed", name, shard, whose(want, saved.State), path),
			os.WriteFile(path, saved.State, 0o644), os.WriteFile(path+".undisturbed", want, 0o644))
	}
	return len(want), err
}

var hostName = regexp.MustCompile(`sim-\d{4,}`)

// whose says what differs first: a host's state begins with its name.
func whose(want, got []byte) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	where := fmt.Sprintf("byte %d of %d and %d", at, len(got), len(want))
	if names := hostName.FindAll(want[:at], -1); len(names) > 0 {
		return fmt.Sprintf("%s, in or behind what it holds of %s", where, names[len(names)-1])
	}
	return where
}

// compareStats holds what a reader counted against what was published and stored.
func (t *truth) compareStats(reader *consumer.Reader, again *[schema.NumKinds]uint64, name string, shard, shards int) error {
	want, got := t.counts(shard, shards, kindsOf[name]), reader.Stats()
	repeated := uint64(0)
	for _, kind := range kindsOf[name] {
		repeated += again[kind]
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%s of shard %d, read undisturbed: %w", name, shard, fmt.Errorf(format, args...))
	}
	switch {
	case got.Invalid != 1 || got.DeadLetters != 1 || got.DeadLettersLost > 0:
		return fault("%d batches invalid, %d dead letters, %d of them lost; one damaged batch was published", got.Invalid, got.DeadLetters+got.DeadLettersLost, got.DeadLettersLost)
	case got.Refused+got.Unknown+got.Retention+got.LateStart > 0:
		return fault("%d batches refused, %d unknown, %d gone before; none of that was published", got.Refused, got.Unknown, got.Retention+got.LateStart)
	case got.Batches != want.batches:
		return fault("%d batches were folded, %d different ones were published", got.Batches, want.batches)
	case got.Duplicates != repeated:
		return fault("%d batches were dropped as repeated, %d were stored again", got.Duplicates, repeated)
	case got.Events != want.events:
		return fault("events by kind %v, published were %v", got.Events, want.events)
	case got.Missing != want.missing:
		return fault("%d batches are missing, %d were withheld", got.Missing, want.missing)
	case reader.Lost() != [schema.NumLosses]uint64{schema.LossSpool: want.lost}:
		return fault("events told as lost, by cause: %v; %d were withheld", reader.Lost(), want.lost)
	}
	return nil
}

// vacuous is an error when what a run is for did not happen: nothing is wrong then either.
func (f *fleet) vacuous(t *truth, repeated uint64) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if f.from == "" { // older programs do not say when they fold
		o := f.outages()
		f.say("from kill -9 of a shard's owner until a batch of it was folded again: %s", o)
		if len(o.took) == 0 {
			fault("consumers were killed %d times, and no shard was taken over", len(f.kills))
		}
	}
	if len(t.boots) != f.hosts {
		fault("%d hosts published, there were to be %d", len(t.boots), f.hosts)
	}
	if t.kept == 0 {
		fault("nothing was withheld")
	}
	if f.killsOnly {
		return errors.Join(faults...)
	}
	if repeated == 0 {
		fault("nothing was stored twice, though a simulator was killed")
	}
	if _, late := f.fence.counts(); late == 0 {
		fault("no zombie tried to write: whether that is refused was not tried")
	}
	return errors.Join(faults...)
}

// lines of the programs' logs that are counted.
var lines = []string{
	"shard is owned", "lease was lost", "checkpoint was refused", "checkpoint was not written", "saved state cannot be used", "batches are missing",
	"stream was written anew", "message came again", "fold panicked", "dead letter not kept", "alert not stored",
}

// crash is what a Go program says last when it fails.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error): .*$`)

// summary says what was done, and what gputap's programs say of it; an error is what they may not say.
func (f *fleet) summary() error {
	for _, what := range slices.Sorted(maps.Keys(f.did)) {
		f.say("%4d × %s", f.did[what], what)
	}
	var faults []error
	counts := map[string]int{}
	for _, p := range slices.Concat(f.consumers, f.simulators) {
		text, err := os.ReadFile(p.Log())
		if err != nil {
			return err
		}
		for _, line := range lines {
			counts[line] += bytes.Count(text, []byte(line))
		}
		for _, line := range crash.FindAll(text, -1) {
			faults = append(faults, fmt.Errorf("%s crashed: %s: see %s", p.Name, line, p.Log()))
		}
	}
	for _, line := range lines {
		f.say("%4d × the consumers said %q", counts[line], line)
	}
	for _, line := range []string{"saved state cannot be used", "fold panicked"} {
		if counts[line] > 0 {
			faults = append(faults, fmt.Errorf("the consumers said %q %d times: see their logs in %s", line, counts[line], f.dir))
		}
	}
	switch stored, late := f.fence.counts(); {
	case f.fence.err() != nil: // it is among the faults
	case late > 0:
		f.say("%4d commits of zombies came to the bus, which refused them: of %d that it stored none is older than the one before", late, stored)
	}
	return errors.Join(faults...)
}

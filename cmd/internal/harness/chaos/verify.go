package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/consumer"
	checkpoint "github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// recover ends the disturbances and the simulators, and waits until the consumers have folded everything.
func (f *fleet) recover(ctx context.Context) error {
	f.Say("recover")
	for _, p := range slices.Concat(f.nodes, f.consumers, f.simulators) {
		p.Signal(syscall.SIGCONT)
		if err := cluster.CheckRunning(p); err != nil {
			return err
		}
	}
	if err := cluster.Until(ctx, 2*time.Minute, func() error { return f.allStreamsHaveLeaders(ctx) }); err != nil {
		return err
	}
	for _, p := range f.simulators {
		if err := f.finishSimulator(ctx, p); err != nil {
			return err
		}
	}
	f.Say("everything is published")
	if err := cluster.Until(ctx, 3*time.Minute, func() error { return f.allFolded(ctx) }); err != nil {
		return err
	}
	for _, p := range f.consumers {
		if err := p.Stop(syscall.SIGTERM, time.Minute); err != nil {
			return err
		}
	}
	f.Say("everything is folded and committed")
	return nil
}

func (f *fleet) allStreamsHaveLeaders(ctx context.Context) error {
	for shard := range f.shards {
		if _, err := f.js.Stream(ctx, schema.StreamName(shard)); err != nil {
			return fmt.Errorf("stream of shard %d: %w", shard, err)
		}
	}
	return nil
}

// allFolded returns nil once every fold has committed the end of every shard's stream.
func (f *fleet) allFolded(ctx context.Context) error {
	for shard := range f.shards {
		if err := reference.Folded(ctx, f.js, shard); err != nil {
			return err
		}
	}
	return nil
}

// mostFaults limits how many faults of one sort are reported.
const mostFaults = 3

// verify compares the streams and the folds' results with the simulators' logs, and the committed states with those of
// an undisturbed reader.
func (f *fleet) verify(ctx context.Context) error {
	faults := []error{f.summarize(), f.commits.err()}
	t, err := readTruth(f.truthLog(0), f.truthLog(1))
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	again, err := f.verifyStreams(ctx, t)
	if err != nil { // nothing else can be right then
		return errors.Join(append(faults, err)...)
	}
	f.Say("the streams hold the simulators' %d batches in order, %d of them repeated; %d were withheld; %d processes",
		t.published, again.total(), t.withheld, len(t.processes))
	// Dead letters come first, because the readers below would add those that are missing.
	faults = append(faults, f.verifyExercised(t, again.total()), f.verifyDeadLetters(ctx), f.verifyAlerts(ctx, t))
	faults = append(faults, f.verifyStates(ctx, t, again))
	return errors.Join(append(faults, f.verifyReports(ctx, t))...)
}

func (f *fleet) verifyStates(ctx context.Context, t *truth, again repeats) error {
	equal, stateBytes := 0, 0
	var faults []error
	for shard := range f.shards {
		for _, entry := range fold.All() {
			n, err := f.verifyState(ctx, t, again, entry, shard)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			equal++
			stateBytes += n
		}
	}
	f.Say("%d of %d states equal those of an undisturbed reader (%d bytes), whose counts equal the published ones",
		equal, f.shards*len(fold.All()), stateBytes)
	if n := len(faults); n > mostFaults {
		faults = append(faults[:mostFaults], fmt.Errorf("and %d more states", n-mostFaults))
	}
	return errors.Join(faults...)
}

// verifyState compares a committed state, and the counts of the reader that it is compared with.
func (f *fleet) verifyState(ctx context.Context, t *truth, again repeats, entry fold.Entry, shard int) (int, error) {
	name := entry.Name()
	saved, err := checkpoint.Saved(ctx, f.js, name, shard)
	if err != nil {
		return 0, err
	}
	state := entry.New()
	reader := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, f.js, state, slog.New(slog.DiscardHandler))
	want, err := reference.State(ctx, reader, state, saved.Sequence)
	if err != nil {
		return 0, err
	}
	err = t.compareCounts(reader, again[shard], entry, shard, f.shards)
	if !bytes.Equal(saved.State, want) {
		path := f.Path(fmt.Sprintf("%s-%d.state", name, shard))
		err = errors.Join(err,
			fmt.Errorf("%s, shard %d: the committed state differs from an undisturbed reader's at %s: see %s*",
				name, shard, firstDifference(want, saved.State), path),
			os.WriteFile(path, saved.State, 0o644), os.WriteFile(path+".undisturbed", want, 0o644))
	}
	return len(want), err
}

var hostName = regexp.MustCompile(`sim-\d{4,}`)

// firstDifference says where two states differ first. The state of a host begins with its name.
func firstDifference(want, got []byte) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	where := fmt.Sprintf("byte %d of %d and %d", at, len(got), len(want))
	if names := hostName.FindAll(want[:at], -1); len(names) > 0 {
		return fmt.Sprintf("%s, at or after host %s", where, names[len(names)-1])
	}
	return where
}

// compareCounts compares the counts of a reader with the published and stored batches.
func (t *truth) compareCounts(
	reader *consumer.Reader, again *[schema.NumKinds]uint64, entry fold.Entry, shard, shards int,
) error {
	want, got := t.counts(shard, shards, entry.Kinds()), reader.Stats()
	repeated := uint64(0)
	for _, kind := range entry.Kinds() {
		repeated += again[kind]
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%s, shard %d, undisturbed reader: %w", entry.Name(), shard, fmt.Errorf(format, args...))
	}
	switch {
	case got.Invalid != 1 || got.DeadLetters != 1 || got.DeadLettersLost > 0:
		return fault("%d invalid batches and %d dead letters, %d of them lost; one damaged batch was published",
			got.Invalid, got.DeadLetters+got.DeadLettersLost, got.DeadLettersLost)
	case got.Refused+got.Unknown+got.Retention+got.LateStart > 0:
		return fault("%d rejected batches, %d unknown ones, %d removed before they were read; none was published",
			got.Refused, got.Unknown, got.Retention+got.LateStart)
	case got.Batches != want.batches:
		return fault("%d batches were folded, %d were published", got.Batches, want.batches)
	case got.Duplicates != repeated:
		return fault("%d batches were dropped as duplicates, %d were stored again", got.Duplicates, repeated)
	case got.Events != want.events:
		return fault("events by kind: %v, published: %v", got.Events, want.events)
	case got.Missing != want.missing:
		return fault("%d missing batches, %d were withheld", got.Missing, want.missing)
	case reader.Lost() != [schema.NumLosses]uint64{schema.LossSpool: want.lost}:
		return fault("lost events by cause: %v; %d were withheld", reader.Lost(), want.lost)
	}
	return nil
}

// verifyExercised returns an error if something that the run must exercise did not happen.
func (f *fleet) verifyExercised(t *truth, repeated uint64) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	taken := f.takeovers()
	f.Say("takeover after kill -9, until the shard's next batch is folded: %s", taken)
	if len(taken.took) == 0 {
		fault("consumers were killed %d times, and no shard was taken over", len(f.kills))
	}
	if len(t.boots) != f.hosts {
		fault("%d of %d hosts published", len(t.boots), f.hosts)
	}
	if t.withheld == 0 {
		fault("no batch was withheld")
	}
	if f.killsOnly {
		return errors.Join(faults...)
	}
	if repeated == 0 {
		fault("no batch was stored twice, although a simulator was killed")
	}
	if _, fenced := f.commits.counts(); fenced == 0 {
		fault("no fenced instance tried to commit, so fencing was not exercised")
	}
	return errors.Join(faults...)
}

// loggedEvents are messages of the programs' logs that are counted.
var loggedEvents = []string{
	logAcquired, logLost, "checkpoint fenced", "checkpoint failed", logUnusable, "missing batches",
	"stream recreated", "message delivered again", logPanicked, "could not be copied to the dead letters",
	"alert not stored",
}

// Messages that no program may log in a run.
const (
	logUnusable = "checkpoint unusable; rebuilding from the stream"
	logPanicked = "fold panicked"
)

// summarize prints the disturbances and how often the programs logged certain events. It returns an error for an event
// that may not happen.
func (f *fleet) summarize() error {
	for _, what := range slices.Sorted(maps.Keys(f.did)) {
		f.Say("%4d × %s", f.did[what], what)
	}
	var faults []error
	counts := map[string]int{}
	for _, p := range slices.Concat(f.consumers, f.simulators) {
		text, err := os.ReadFile(p.Log())
		if err != nil {
			return err
		}
		for _, event := range loggedEvents {
			counts[event] += bytes.Count(text, []byte(event))
		}
		for _, line := range p.Crashes() {
			faults = append(faults, fmt.Errorf("%s crashed: %s: see %s", p.Name, line, p.Log()))
		}
	}
	for _, event := range loggedEvents {
		f.Say("%4d × logged: %s", counts[event], event)
	}
	for _, event := range []string{logUnusable, logPanicked} {
		if counts[event] > 0 {
			faults = append(faults, fmt.Errorf("consumers logged %q %d times: see %s", event, counts[event], f.Dir))
		}
	}
	if stored, fenced := f.commits.counts(); f.commits.err() == nil && fenced > 0 {
		f.Say("%4d commits of fenced instances were rejected; none of the %d stored ones is older than its predecessor",
			fenced, stored)
	}
	return errors.Join(faults...)
}

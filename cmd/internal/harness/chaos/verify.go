package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/schema"
)

// recover ends the disturbances and the simulators, and waits until the consumers have folded everything.
func (f *fleet) recover(ctx context.Context) error {
	f.Say("recover")
	if err := cluster.CheckRunning(f.processes()...); err != nil {
		return err
	}
	for _, p := range f.simulators {
		if err := p.Stop(syscall.SIGINT, 2*time.Minute); err != nil {
			return err
		}
	}
	f.Say("everything is published")
	// A shard that is folded later publishes summaries to one that was at its end, so the ends are compared twice.
	for range 2 {
		if err := cluster.Until(ctx, 3*time.Minute, func() error {
			return reference.AllFolded(ctx, f.js, shards, fold.All()...)
		}); err != nil {
			return err
		}
	}
	for _, p := range f.consumers {
		if err := p.Stop(syscall.SIGTERM, time.Minute); err != nil {
			return err
		}
	}
	f.Say("everything is folded and committed")
	return nil
}

// firstOf joins the first few faults.
func firstOf(faults []error) error {
	const most = 3
	if n := len(faults); n > most {
		faults = append(faults[:most:most], fmt.Errorf("and %d more", n-most))
	}
	return errors.Join(faults...)
}

// verify compares the streams and the folds' results with the simulators' logs, and the committed states with those of
// an undisturbed reader.
func (f *fleet) verify(ctx context.Context) error {
	faults := []error{f.verifyLogs(), firstOf(f.commits.now().faults)}
	t, err := readTruth(f.truthLog(0), f.truthLog(1))
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	again, ofRanks, err := f.verifyStreams(ctx, t)
	if err != nil { // nothing else can be right then
		return errors.Join(append(faults, err)...)
	}
	f.Say("the streams hold the simulators' %d batches in order, %d of them repeated; %d were withheld; %d processes",
		t.published, again.total, t.withheld, len(t.processes))
	// Dead letters come first, because the readers below would add those that are missing.
	want := newOutputs()
	faults = append(faults, f.verifyExercised(t, again.total), f.verifyDeadLetters(ctx), f.verifyAlerts(ctx, t),
		f.verifyStates(ctx, t, again, ofRanks, want), f.verifySummaries(ofRanks, want), f.verifyOutputs(ctx, want),
		f.verifyReports(ctx, t))
	return errors.Join(faults...)
}

// verifyStates compares the committed states with those of undisturbed readers, and the readers' counts with the truth.
// It adds to out what the readers publish.
func (f *fleet) verifyStates(ctx context.Context, t *truth, again *repeats, ofRanks *summaries, out *outputs) error {
	equal, stateBytes := 0, 0
	var faults []error
	for shard := range shards {
		for _, entry := range entriesTo(out) {
			path := f.Path(fmt.Sprintf("%s-%d.state", entry.Name(), shard))
			reader, err := reference.Compare(ctx, f.js, entry, shard, path)
			if reader != nil {
				stateBytes += reader.StateBytes
				err = errors.Join(err, t.compareCounts(reader, &again.of[shard], &ofRanks.counts[shard], entry, shard))
			}
			if err != nil {
				faults = append(faults, err)
				continue
			}
			equal++
		}
	}
	f.Say("%d of %d states equal those of an undisturbed reader (%d bytes), whose counts equal the published ones",
		equal, shards*len(fold.All()), stateBytes)
	return firstOf(faults)
}

// compareCounts compares the counts of a reader with the published and stored batches.
func (t *truth) compareCounts(
	reader *reference.Reader, again *[schema.NumKinds]uint64, ofRanks *counts, entry fold.Entry, shard int,
) error {
	published := t.counts(shard, shards, entry.Kinds())
	if slices.Contains(entry.Kinds(), schema.KindRank) {
		published.batches += ofRanks.batches
		published.missing += ofRanks.missing
		published.events[schema.KindRank] = ofRanks.events[schema.KindRank]
	}
	got := reader.Stats()
	want := got // times and lag are not compared
	want.Batches, want.Events, want.Missing = published.batches, published.events, published.missing
	want.Duplicates = 0
	for _, kind := range entry.Kinds() {
		want.Duplicates += again[kind]
	}
	want.Invalid, want.DeadLetters, want.DeadLettersLost = 1, 1, 0 // the damaged batch
	want.Refused, want.Unknown, want.Retention, want.LateStart = 0, 0, 0, 0
	lost := [schema.NumLosses]uint64{schema.LossSpool: published.lost}
	if got != want || reader.Lost() != lost {
		return fmt.Errorf("%s, shard %d: an undisturbed reader counts %+v and lost events %v; published: %+v and %v",
			entry.Name(), shard, got, reader.Lost(), want, lost)
	}
	return nil
}

// verifyExercised returns an error if something that the run must exercise did not happen.
func (f *fleet) verifyExercised(t *truth, repeated uint64) error {
	events, err := f.shardEvents()
	if err != nil {
		return err
	}
	taken := takeoversOf(events)
	f.Say("takeover after kill -9, until the shard's next batch is folded: %s", taken)
	commits := f.commits.now()
	f.Say("%d commits are stored; %d of fenced instances were rejected", commits.stored, commits.fenced)
	var faults []error
	must := func(happened bool, format string, args ...any) {
		if !happened {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	must(len(taken.took) > 0, "consumers were killed %d times, and no shard was taken over", len(f.kills))
	must(len(t.boots) == f.hosts, "%d of %d hosts published", len(t.boots), f.hosts)
	must(t.withheld > 0, "no batch was withheld")
	must(f.killsOnly || repeated > 0, "no batch was stored twice, although a simulator was killed")
	must(f.killsOnly || commits.fenced > 0, "no fenced instance tried to commit, so fencing was not exercised")
	return errors.Join(faults...)
}

// forbidden are lines that no program may log: crashes, and states or batches that a consumer cannot use.
var forbidden = regexp.MustCompile(
	`(?m)^(panic|fatal error): .*$|^.*(checkpoint unusable; rebuilding from the stream|fold panicked).*$`)

// verifyLogs prints the disturbances. It returns an error if a program logged what may not happen in a run.
func (f *fleet) verifyLogs() error {
	for _, what := range slices.Sorted(maps.Keys(f.did)) {
		f.Say("%4d × %s", f.did[what], what)
	}
	var faults []error
	for _, p := range slices.Concat(f.consumers, f.simulators) {
		text, err := os.ReadFile(p.Log())
		if err != nil {
			return err
		}
		for _, line := range forbidden.FindAllString(string(text), -1) {
			faults = append(faults, fmt.Errorf("%s logged %s: see %s", p.Name, line, p.Log()))
		}
	}
	return firstOf(faults)
}

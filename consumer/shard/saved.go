package shard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// SavedState is the newest checkpoint of a fold in a shard: the state of an undisturbed reader that has read up to that
// message of the shard's stream.
type SavedState struct {
	State    []byte
	Sequence uint64
	Created  time.Time // of that stream; zero if the state was inherited and nothing was read since
	Epoch    uint64    // number of claims of the shard so far
	Written  time.Time
}

// Saved reads the newest checkpoint. Without a checkpoint the result is empty.
func Saved(ctx context.Context, js jetstream.JetStream, fold string, shard int) (SavedState, error) {
	c := store{js: js, fold: fold, shard: shard}
	for began := time.Now(); ; {
		m, err := c.latest(ctx)
		if err != nil {
			return SavedState{}, err
		}
		state, err := c.load(ctx, &m, 0)
		saved := SavedState{State: state, Sequence: m.Sequence, Created: m.Created, Epoch: m.Epoch, Written: m.Written}
		// A newer checkpoint may have freed the parts meanwhile, or a replica is stale.
		again := errors.Is(err, errDamaged) && m.valid() && time.Since(began) < stateTimeout
		if !again || !bus.Sleep(ctx, rereadInterval) {
			return saved, err
		}
	}
}

// RemoveStates removes all that a fold has saved, and returns how many messages that was. It refuses while an instance
// of the fold runs.
func RemoveStates(ctx context.Context, js jetstream.JetStream, fold string) (messages uint64, err error) {
	if err := CheckName(fold); err != nil {
		return 0, err
	}
	l, err := openLeases(ctx, js, fold, "")
	if err != nil {
		return 0, err
	}
	members, _, err := l.look(ctx)
	if err != nil {
		return 0, err
	}
	if len(members) > 0 {
		return 0, fmt.Errorf("remove the states of %s: instance %s runs it: stop the instance first; if it "+
			"was killed, wait %s", fold, members[0].name, l.ttl)
	}
	jsStream, err := js.Stream(ctx, schema.StateStream)
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	all := schema.StateSubjectsOf(fold)
	info, err := jsStream.Info(ctx, jetstream.WithSubjectFilter(all))
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	if len(info.State.Subjects) == 0 {
		return 0, fmt.Errorf("remove the states of %s: no such fold has saved any; see gputap stream info", fold)
	}
	if err := jsStream.Purge(ctx, jetstream.WithPurgeSubject(all)); err != nil {
		return 0, fmt.Errorf("remove the states of %s: %w", fold, err)
	}
	for _, n := range info.State.Subjects {
		messages += n
	}
	return messages, nil
}

// RemoveGeneration removes a closed generation from the bus. It refuses while a fold has states there that a later
// generation has not taken over.
func RemoveGeneration(ctx context.Context, js jetstream.JetStream, generation int) (removed []string, err error) {
	return bus.RemoveGeneration(ctx, js, generation, func(closed, next *schema.Topology) error {
		return checkTakenOver(ctx, js, closed, next)
	})
}

// checkTakenOver returns an error while a fold has states of a closed generation, and a shard of next has not saved
// its inherited states.
func checkTakenOver(ctx context.Context, js jetstream.JetStream, closed, next *schema.Topology) error {
	folds, err := foldsWithStates(ctx, js, closed)
	if err != nil {
		return err
	}
	for _, fold := range folds {
		done, err := takenOver(ctx, js, fold, next, bus.RequestTimeout)
		if err != nil {
			return fmt.Errorf("check whether %s has taken over generation %d: %w", fold, closed.Generation, err)
		}
		if !done {
			return fmt.Errorf("%s has not taken over its states of generation %d: run it until it has; if nobody "+
				"runs it any more: gputap stream rm --fold %s", fold, closed.Generation, fold)
		}
	}
	return nil
}

// foldsWithStates lists the folds that have manifests of a generation's shards, as the stream's leader knows. It does
// not read the manifests: a replica may be stale, and those of a newer program cannot be read.
func foldsWithStates(ctx context.Context, js jetstream.JetStream, g *schema.Topology) (folds []string, err error) {
	jsStream, err := js.Stream(ctx, schema.StateStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	prefix := strings.TrimSuffix(schema.StateSubjects, ">")
	info, err := jsStream.Info(ctx, jetstream.WithSubjectFilter(prefix+"*.*.m"))
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	for subject := range info.State.Subjects {
		words := strings.Split(strings.TrimPrefix(subject, prefix), ".")
		shard, err := strconv.Atoi(words[1])
		if err == nil && g.Has(shard) && !slices.Contains(folds, words[0]) {
			folds = append(folds, words[0])
		}
	}
	slices.Sort(folds)
	return folds, nil
}

// CheckName refuses a fold name that would have to be changed for subjects, keys and names of JetStream consumers: it
// could become the name of another fold.
func CheckName(fold string) error {
	if !foldName.MatchString(fold) {
		return fmt.Errorf("fold name %q: use letters, digits, - and _", fold)
	}
	return nil
}

var foldName = regexp.MustCompile(`^[-_A-Za-z0-9]+$`)

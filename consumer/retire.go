package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// RemoveStates takes away what a fold has saved, which nobody runs any more, and says how many messages that was.
func RemoveStates(ctx context.Context, js jetstream.JetStream, fold string) (messages uint64, err error) {
	if err := checkName(fold); err != nil {
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
		return 0, fmt.Errorf("%s is run by %s: stop it first, and wait %s when it was killed", fold, members[0].name, l.ttl)
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
		return 0, fmt.Errorf("nothing is saved of a fold %s: see gputap stream info", fold)
	}
	if err := jsStream.Purge(ctx, jetstream.WithPurgeSubject(all)); err != nil {
		return 0, fmt.Errorf("remove the states of %s: %w", fold, err)
	}
	for _, n := range info.State.Subjects {
		messages += n
	}
	return messages, nil
}

// takenOver is an error while a fold has states of a closed generation, and a later one has not all inherited and saved.
func takenOver(ctx context.Context, js jetstream.JetStream, closed, later *schema.Topology) error {
	folds, err := savedIn(ctx, js, closed)
	if err != nil {
		return err
	}
	for _, fold := range folds {
		taken, err := takenUp(ctx, js, fold, later)
		if err != nil {
			return fmt.Errorf("ask whether %s has taken over what it saved of generation %d: %w", fold, closed.Generation, err)
		}
		if !taken {
			return fmt.Errorf("%s has not taken over yet what it saved of generation %d: let it run until it has, or, if nobody runs it any more: gputap stream rm --fold %s",
				fold, closed.Generation, fold)
		}
	}
	return nil
}

// savedIn are the folds with manifests of a generation, as the leader says. What these hold does not matter: a replica may be behind,
// and a newer program's cannot be read.
func savedIn(ctx context.Context, js jetstream.JetStream, g *schema.Topology) (folds []string, err error) {
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

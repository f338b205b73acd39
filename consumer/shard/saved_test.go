package shard

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// TestGenerationIsKeptForNewerManifest: its contents are unknown, so the generation may still be needed.
func TestGenerationIsKeptForNewerManifest(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := newStore(js)
	manifest := fmt.Appendf(nil, `{"form":%d,"epoch":7,"elsewhere":true}`, manifestForm+1)
	if _, err := js.Publish(t.Context(), c.subject("m"), manifest); err != nil {
		t.Fatal(err)
	}
	reshard(t, js, 2)
	if _, err := RemoveGeneration(t.Context(), js, 1); err == nil ||
		!strings.Contains(err.Error(), "chain has not taken over") {
		t.Errorf("it is removed: %v", err)
	}
}

// TestRemoveGenerationPurgesItsStates: of every fold, and of no other shard.
func TestRemoveGenerationPurgesItsStates(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 2)
	reshard(t, js, 20)
	left := map[string]bool{}
	for _, fold := range []string{"chain", "other"} {
		for shard := range 22 {
			c := &store{js: js, fold: fold, shard: shard}
			m, err := c.claim(t.Context(), "one", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.commit(t.Context(), &m, m, []byte("state")); err != nil {
				t.Fatal(err)
			}
			if shard >= 2 {
				left[c.subject("m")], left[c.partSubject(&m, 0)] = true, true
			}
		}
	}
	if _, err := RemoveGeneration(t.Context(), js, 1); err != nil {
		t.Fatal(err)
	}
	states, err := js.Stream(t.Context(), schema.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	now, err := states.Info(t.Context(), jetstream.WithSubjectFilter(schema.StateSubjects))
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(now.State.Subjects, left, func(messages uint64, _ bool) bool { return messages == 1 }) {
		t.Errorf("left are %v, want %v", now.State.Subjects, left)
	}
}

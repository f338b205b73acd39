package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// fakeBucket answers each renewal with the next of its errors, and the last of them for ever.
type fakeBucket struct {
	jetstream.KeyValue
	answers  []error
	entry    fakeEntry
	renewals int
}

// errSilent stands for a request without an answer.
var errSilent = errors.New("no answer")

func (b *fakeBucket) Update(ctx context.Context, _ string, _ []byte, revision uint64) (uint64, error) {
	answer := b.answers[0]
	if len(b.answers) > 1 {
		b.answers = b.answers[1:]
	}
	if errors.Is(answer, errSilent) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if answer == nil {
		b.renewals++
	}
	return revision + 1, answer
}

func (b *fakeBucket) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	if b.entry.value == "" {
		return nil, jetstream.ErrKeyNotFound
	}
	return b.entry, nil
}

type fakeEntry struct {
	jetstream.KeyValueEntry
	value    string
	revision uint64
}

func (e fakeEntry) Value() []byte    { return []byte(e.value) }
func (e fakeEntry) Revision() uint64 { return e.revision }

// TestKeepLease: a lease is kept while it can be renewed now and then, and lost before it expires for others.
func TestKeepLease(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	wrong := &jetstream.APIError{ErrorCode: 10071}
	for _, tt := range []struct {
		name     string
		answers  []error
		entry    fakeEntry
		lost     time.Duration // after which keep returns errLeaseLost; 0: it is kept
		revision uint64
	}{
		{"renewed", []error{nil}, fakeEntry{}, 0, 7 + 23}, // every quarter of the TTL
		{"one silence", []error{nil, errSilent, nil}, fakeEntry{}, 0, 7 + 21},
		{"silence from the beginning", []error{errSilent}, fakeEntry{}, ttl, 7},
		{"silence later", []error{nil, errSilent}, fakeEntry{}, ttl/4 + ttl, 8},
		{"another holds it", []error{nil, wrong}, fakeEntry{value: `{"instance":"b"}`, revision: 20}, ttl / 2, 8},
		{"it has expired", []error{wrong}, fakeEntry{}, ttl / 4, 7},
		{"the ack was lost", []error{wrong, nil}, fakeEntry{value: `{"instance":"a"}`, revision: 9}, 0, 9 + 22},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &leases{kv: &fakeBucket{answers: tt.answers, entry: tt.entry}, fold: "chain", instance: "a",
					ttl: ttl}
				ctx, stop := context.WithTimeout(t.Context(), 6*ttl-time.Second)
				defer stop()
				began, revision := time.Now(), uint64(7)
				err := l.keep(ctx, 0, &revision)
				took := time.Since(began)
				if lost := errors.Is(err, errLeaseLost); lost != (tt.lost > 0) || lost && took != tt.lost {
					t.Errorf("%v after %s, want it lost after %s", err, took, tt.lost)
				}
				if revision != tt.revision {
					t.Errorf("revision %d, want %d", revision, tt.revision)
				}
			})
		})
	}
}

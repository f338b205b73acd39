package consumer

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// TestRestartBehindRetention: what the stream has let go of since a reader folded it is nothing that its state tells.
func TestRestartBehindRetention(t *testing.T) {
	js := connectReady(t)
	last := publishMemory(t, js, 1, 2, 3)
	undisturbedFold, fold := newChain(), newChain()
	undisturbed, _ := start(t, js, undisturbedFold, ReaderOptions{})
	wait(t, undisturbed, last)
	before, stop := start(t, js, fold, ReaderOptions{})
	wait(t, before, last)
	stop()
	var at manifest
	saved, err := before.checkpoint(nil, fold, &at)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last)); err != nil {
		t.Fatal(err)
	}

	fold = newChain()
	restarted := NewReader(ReaderOptions{}, js, fold, slog.New(slog.DiscardHandler))
	if err := restarted.restore(saved, fold, nil); err != nil {
		t.Fatal(err)
	}
	restarted.resume(&at)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- restarted.Run(ctx) }()
	last = publishMemory(t, js, 4)
	wait(t, undisturbed, last)
	wait(t, restarted, last)
	want, err := undisturbed.State(undisturbedFold)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := restarted.State(fold); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the state is not that of an undisturbed reader: %v\n%x\n%x", err, got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package embedded

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

var quiet = slog.New(slog.DiscardHandler)

func TestStoreSurvivesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range uint64(2) {
		s, err := Start(dir, config.Embedded{}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		nc, js, err := s.Connect("test")
		if err != nil {
			t.Fatal(err)
		}
		_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		if err != nil {
			t.Fatal(err)
		}
		ack, err := js.Publish(t.Context(), "s", nil)
		if err != nil {
			t.Fatal(err)
		}
		if ack.Sequence != round+1 {
			t.Errorf("message %d of round %d", ack.Sequence, round)
		}
		if _, err := Start(dir, config.Embedded{}, quiet); err == nil || !strings.Contains(err.Error(),
			"another gputap uses it") {
			t.Errorf("a second server on the store: %v", err)
		}
		nc.Close()
		s.Stop()
	}
}

func TestStoreMustBeDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(path, config.Embedded{}, quiet); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestUnusableStoreFailsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := Start(dir, config.Embedded{}, quiet); err == nil || !strings.Contains(err.Error(),
		"not a directory") {
		t.Errorf("got %v", err)
	}
	if waited := time.Since(start); waited > startTime/2 {
		t.Errorf("the error came after %s", waited)
	}
	if err := os.Remove(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	s, err := Start(dir, config.Embedded{}, quiet)
	if err != nil {
		t.Fatalf("the store is still locked after a failure: %v", err)
	}
	s.Stop()
}

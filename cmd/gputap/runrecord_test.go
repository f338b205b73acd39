//go:build bpf

package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestRunRecord records two runs on one store into one file. It has exactly the messages of the store, the last ones
// included. A run on a new store refuses the file.
func TestRunRecord(t *testing.T) {
	requireBPF(t)
	store, file := t.TempDir(), filepath.Join(t.TempDir(), "run.gtr")
	for range 2 {
		_, stderr, status := gputap(t, runArgs(t, "--store", store, "--record", file, "--", fixture(t, "workload"),
			"launches")...)
		if status != 0 {
			t.Fatalf("ends with %d: %s", status, stderr)
		}
	}
	if _, stderr, status := gputap(t, runArgs(t, "--record", file, "--", "true")...); status != 1 ||
		!bytes.Contains([]byte(stderr), []byte("record into another file; to continue a file, give both runs the same "+
			"--store")) {
		t.Errorf("on a new store it ends with %d: %s", status, stderr)
	}
	stored := storedMessages(t, store)
	r, err := recording.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n, events := 0, 0
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	for m, err := range r.Messages(recording.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n >= len(stored) || m.Sequence != uint64(n+1) || !bytes.Equal(m.Data, stored[n]) {
			t.Fatalf("message %d has sequence %d, or differs from the stored one", n, m.Sequence)
		}
		n++
		if err := decoder.Decode(m.Data, b); err != nil {
			t.Fatal(err)
		}
		if b.Kind == schema.KindLaunch {
			events += b.Events
		}
	}
	if n != len(stored) || events < 2*1500 {
		t.Errorf("%d messages are recorded and %d stored, with %d launches", n, len(stored), events)
	}
}

// storedMessages returns the messages of the first shard of a store.
func storedMessages(t *testing.T, store string) (all [][]byte) {
	t.Helper()
	s, err := embedded.Start(store, config.Embedded{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, js, err := s.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	stream, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	for sequence := uint64(1); sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		m, err := stream.GetMsg(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m.Data)
	}
	return all
}

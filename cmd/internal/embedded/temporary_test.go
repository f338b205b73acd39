package embedded

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

func startTemporary(t *testing.T, parent string, log *slog.Logger) (*Server, string) {
	t.Helper()
	s, err := StartTemporary(parent, config.Embedded{}, log)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.temporary
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// kill ends a server as SIGKILL does: the store stays and its lock is free.
func kill(s *Server) {
	s.temporary = ""
	s.Stop()
}

func TestStopRemovesTemporaryStore(t *testing.T) {
	t.Parallel()
	s, dir := startTemporary(t, t.TempDir(), slog.New(slog.DiscardHandler))
	if !exists(filepath.Join(dir, "jetstream")) {
		t.Errorf("no store in %s", dir)
	}
	s.Stop()
	if exists(dir) {
		t.Errorf("%s is left", dir)
	}
}

// TestNextRunRemovesStoresOfKilledRuns keeps the store of a live run, a named store, and other directories.
func TestNextRunRemovesStoresOfKilledRuns(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	parent := t.TempDir()
	alive, aliveDir := startTemporary(t, parent, quiet)
	defer alive.Stop()
	adopted, adoptedDir := startTemporary(t, parent, quiet)
	kill(adopted)
	named := filepath.Join(parent, "gputap-named")
	for _, dir := range []string{adoptedDir, named} { // gputap run --store
		s, err := Start(dir, config.Embedded{}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		s.Stop()
	}
	killed, killedDir := startTemporary(t, parent, quiet)
	kill(killed)
	other := filepath.Join(parent, "gputap-truth-1")
	outside := t.TempDir()
	link := filepath.Join(parent, "gputap-link")
	for _, err := range []error{
		os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, lockName), nil, 0o600),
		os.WriteFile(filepath.Join(outside, lockName), nil, 0o600),
		os.WriteFile(filepath.Join(outside, markerName), nil, 0o600), os.Symlink(outside, link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	var text bytes.Buffer
	next, nextDir := startTemporary(t, parent, slog.New(slog.NewTextHandler(&text, nil)))
	defer next.Stop()
	if exists(killedDir) {
		t.Errorf("%s of a killed run is left", killedDir)
	}
	for _, dir := range []string{
		aliveDir, adoptedDir, named, other, link, filepath.Join(outside, markerName), nextDir,
	} {
		if !exists(dir) {
			t.Errorf("%s was removed", dir)
		}
	}
	got := text.String()
	if strings.Count(got, "removed the temporary store of a killed run") != 1 || !strings.Contains(got, killedDir) {
		t.Errorf("the log does not name %s alone:\n%s", killedDir, got)
	}
}

func TestStoreLimit(t *testing.T) {
	t.Parallel()
	for size, want := range map[config.Bytes]int64{0: 2 << 30, 100 << 20: 100 << 20} {
		s, err := StartTemporary(t.TempDir(), config.Embedded{StoreMaxBytes: size}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		nc, js, err := s.Connect("test")
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			bytes int64
			fits  bool
		}{{want + 1, false}, {want, true}} {
			_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: "S", Subjects: []string{"s"}, MaxBytes: tt.bytes,
			})
			if fits := err == nil; fits != tt.fits {
				t.Errorf("limit %d: a stream of %d bytes fits: %v, %v", size, tt.bytes, fits, err)
			}
		}
		nc.Close()
		s.Stop()
	}
}

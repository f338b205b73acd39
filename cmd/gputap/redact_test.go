package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/record"
)

// TestRedactCommand redacts a recording into a file and through a pipe, and records with pseudonyms.
func TestRedactCommand(t *testing.T) {
	t.Parallel()
	url := simulated(t, "2")
	file, dir := recorded(t, url), t.TempDir()
	copied, piped := filepath.Join(dir, "copied.gtr"), filepath.Join(dir, "piped.gtr")
	out, err := typed(t, "record", "redact", file, "-o", copied)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "copied.gtr: ", " messages with ")
	if out, err = typed(t, "record", "redact", file, "-o", "-"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(piped, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{copied, piped, recorded(t, url, "--redact", "--cluster", "sim")} {
		if out, err = typed(t, "record", "inspect", path, "-o", "json"); err != nil {
			t.Fatal(err)
		}
		var got record.Inspection
		if err := json.Unmarshal([]byte(out), &got); err != nil || !got.Selected.Redacted || len(got.Hosts) != 4 ||
			!strings.HasPrefix(got.Hosts[0].Host, "host-") || strings.Contains(out, "sim-0") {
			t.Errorf("%v: %s", err, out)
		}
		if _, err = typed(t, "replay", path); err != nil {
			t.Error(err)
		}
	}
	if out, err = typed(t, "record", "inspect", copied); err != nil {
		t.Fatal(err)
	}
	contains(t, out, "everything, with pseudonyms")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, "self.gtr")); err != nil {
		t.Fatal(err)
	}
	shown := filepath.Join(dir, "shown.gtr")
	p := &app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(onLine(func() { // of the damage
		if _, err := os.Stat(shown); err == nil {
			t.Error("the file has its name before it is complete")
		}
	}))}
	if err := redactFile(t.Context(), p, file, shown); app.ExitCode(err) != 4 {
		t.Error(err)
	}
	if _, err := os.Stat(shown); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := redactFile(ended, p, file, filepath.Join(dir, "ended.gtr")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, tt := range []struct {
		want   string
		status int
		args   []string
	}{
		{"damaged", 4, []string{file, "-o", filepath.Join(dir, "damaged.gtr")}},
		{"this is the file to read", 2, []string{file, "-o", filepath.Join(dir, "self.gtr")}},
		{"file exists", 1, []string{file, "-o", copied}},
		{"--output", 2, []string{file}},
		{"no FILE given", 2, []string{"-o", "x"}},
		{"no such file", 1, []string{"/no/such/file", "-o", filepath.Join(dir, "none.gtr")}},
	} {
		_, err := typed(t, append([]string{"record", "redact"}, tt.args...)...)
		if app.ExitCode(err) != tt.status || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: status %d, %v", tt.args, app.ExitCode(err), err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none.gtr")); err == nil {
		t.Error("an error leaves a file")
	}
}

// onLine calls a function for each line of a log.
type onLine func()

func (onLine) Enabled(context.Context, slog.Level) bool     { return true }
func (on onLine) Handle(context.Context, slog.Record) error { on(); return nil }
func (on onLine) WithAttrs([]slog.Attr) slog.Handler        { return on }
func (on onLine) WithGroup(string) slog.Handler             { return on }

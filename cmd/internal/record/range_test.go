package record

import (
	"context"
	"os"
	"testing"

	"github.com/gputap/gputap/consumer/bus/bustest"
)

// TestRange records what a bus holds of a time, with its state, and leaves no file after an error.
func TestRange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(150)
	dir, o := t.TempDir(), f.options("")
	o.Since, o.Until = f.published[50].Stored, f.published[100].Stored
	stopped := false
	s, err := Range(t.Context(), o, dir, func(*Recorder) func() { return func() { stopped = true } })
	check(t, err)
	got := readFile(t, s.Path)
	expect(t, got.messages, f.messages(func(_ int, m *published) bool {
		return !m.Stored.Before(o.Since) && m.Stored.Before(o.Until)
	}))
	if len(got.live) == 0 || !stopped || s.Lost() != nil {
		t.Errorf("%d hosts have a state, stopped %t, %v", len(got.live), stopped, s.Lost())
	}
	check(t, os.Remove(s.Path))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Range(ended, o, dir, nil); err == nil {
		t.Error("no error after the end of ctx")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

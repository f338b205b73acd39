package record

import (
	"testing"
	"time"
)

// TestRemaining estimates the time that a recorder needs.
func TestRemaining(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	s := Stats{First: first, Last: first.Add(time.Hour)}
	if got := remaining(&s, first.Add(4*time.Hour), 10*time.Second); got != 30*time.Second {
		t.Errorf("one of four hours took 10 s, and three hours need %s", got)
	}
	if got := remaining(&s, time.Time{}, time.Second); got != 0 {
		t.Errorf("without an end: %s", got)
	}
}

package record

import (
	"fmt"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
)

// ProgressLine returns the line of progress of a recorder. With until it estimates the end from the time that is
// covered.
func ProgressLine(r *Recorder, until time.Time) func() string {
	began, before := time.Now(), Stats{}
	return func() string {
		s := r.Stats()
		line := fmt.Sprintf("%s  %d messages  %d events (%d/s)  %s covered", app.Bytes(uint64(s.Bytes)), s.Messages,
			s.Events, s.Events-before.Events, s.Last.Sub(s.First).Round(time.Second))
		before = s
		if left := remaining(&s, until, time.Since(began)); left > 0 {
			line += fmt.Sprintf("  ETA %s", left.Round(time.Second))
		}
		return line
	}
}

// remaining estimates how long a recorder needs until a time, or returns 0.
func remaining(s *Stats, until time.Time, elapsed time.Duration) time.Duration {
	covered := s.Last.Sub(s.First)
	if until.IsZero() || covered <= 0 {
		return 0
	}
	reading := time.Duration(float64(elapsed) * float64(until.Sub(s.Last)) / float64(covered))
	return max(reading, time.Until(until))
}

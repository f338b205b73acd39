package replay

import (
	"fmt"
	"time"
)

// ProgressLine returns the line of progress of a replay.
func ProgressLine(f *File, pace Pace, stats func() Stats) func() string {
	return func() string {
		s, all := stats(), f.Summary()
		line := fmt.Sprintf("%d of %d messages  %s of %s", s.Messages, all.Messages, seconds(s.Last.Sub(s.First)),
			seconds(all.Last.Sub(all.First)))
		if left := remaining(&s, &all, pace); left > 0 {
			line += "  ETA " + seconds(left)
		}
		if s.Behind >= time.Second {
			line += fmt.Sprintf("  too slow: up to %s late", seconds(s.Behind))
		}
		return line
	}
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// remaining estimates how long a replay needs to the end; 0: unknown.
func remaining(s *Stats, all *Summary, pace Pace) time.Duration {
	covered := s.Last.Sub(s.First)
	switch left := all.Last.Sub(s.Last); {
	case s.Messages == 0:
		return 0
	case pace.Speed > 0 && pace.MaxIdle == 0:
		return time.Duration(float64(left) / pace.Speed)
	case covered <= 0:
		return 0
	default:
		return time.Duration(float64(s.Elapsed) * float64(left) / float64(covered))
	}
}

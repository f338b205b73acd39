package replay

import "time"

// schedule says when messages are due. It only adds to its beginning, so that errors do not add up.
type schedule struct {
	speed   float64       // 0: everything is due at once
	maxIdle time.Duration // longest pause between two messages; 0: no limit

	began       time.Time // of the replay, with a monotonic clock
	first, last time.Time // when NATS stored the first message, and the latest one so far
	cut         time.Duration
}

// due returns when a message is due, now being the time of the first call.
func (s *schedule) due(stored, now time.Time) time.Time {
	if s.began.IsZero() {
		s.began, s.first, s.last = now, stored, stored
	}
	if s.speed == 0 {
		return s.began
	}
	if pause := s.scaled(stored.Sub(s.last)); s.maxIdle > 0 && pause > s.maxIdle {
		s.cut += pause - s.maxIdle
	}
	if stored.After(s.last) {
		s.last = stored
	}
	return s.began.Add(s.scaled(stored.Sub(s.first)) - s.cut)
}

func (s *schedule) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / s.speed) }

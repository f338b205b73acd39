package trend

import (
	"time"

	"github.com/gputap/gputap/schema"
)

const (
	// Kept is the number of closed windows that Judge looks at. Growth makes a series Suspect after so many windows.
	Kept = 30
	// Fewest is the number of windows without which there is no verdict. Fewer could not tell a leak from the load of
	// a model, and a leak must be Growing within 30 windows.
	Fewest = 17

	// pause is the number of windows in which growth must go on: every sixth window may have all of it.
	pause = 7

	slots = 64 // windows of a Series: those that Judge looks at, and 34 that are not closed yet
)

// Series is the live memory of one subject, such as a process on one GPU.
type Series struct {
	width   schema.KTime // length of a window
	start   schema.KTime // of the current window
	current uint64       // number of the newest window with an event; window n begins at n × width
	first   uint64       // first window that began after the series did
	live    uint64       // bytes
	before  uint64       // live bytes at the start of the current window

	minima [slots]uint64 // lowest live bytes of each window, by its number modulo slots
	births [slots]uint64 // bytes allocated in each window and still live
}

// NewSeries returns a Series without live memory that begins at a time. A window is at least 2 ns long.
func NewSeries(window time.Duration, at schema.KTime) *Series {
	s := &Series{width: schema.KTime(max(window, 2))}
	s.current = uint64(at / s.width)
	s.start, s.first = schema.KTime(s.current)*s.width, s.current+1
	return s
}

// Live returns the live bytes.
func (s *Series) Live() uint64 { return s.live }

// Add adds memory that was allocated at a time, and returns the live bytes.
func (s *Series) Add(at schema.KTime, bytes uint64) uint64 {
	if at-s.start >= s.width { // also if at is before the window
		s.addOutside(uint64(at/s.width), bytes)
		return s.live
	}
	s.live += bytes
	s.births[s.current%slots] += bytes
	return s.live
}

func (s *Series) addOutside(w, bytes uint64) {
	if w > s.current {
		s.advance(w)
	} else {
		s.shift(w, bytes)
	}
	s.live += bytes
	s.born(w, bytes)
}

// Remove removes memory that was allocated at since and freed at a time. A time before since counts as since: the
// probes of two threads race.
func (s *Series) Remove(at, since schema.KTime, bytes uint64) {
	at = max(at, since)
	if at-s.start >= s.width {
		s.removeOutside(uint64(at/s.width), bytes)
	} else {
		s.live -= bytes
		low := &s.minima[s.current%slots]
		*low = min(*low, s.live)
	}
	if since >= s.start {
		s.births[s.current%slots] -= bytes
		return
	}
	s.born(uint64(since/s.width), -bytes)
}

func (s *Series) removeOutside(w, bytes uint64) {
	if w > s.current {
		s.advance(w)
		s.live -= bytes
		s.minima[w%slots] = s.live
		return
	}
	s.live -= bytes
	s.shift(w, -bytes)
	if w+1 == s.current {
		s.minima[w%slots] = min(s.minima[w%slots], s.before)
	}
}

// Set sets the live bytes of a series that has no allocations. Judge it with Criteria.Level. A time before the newest
// window counts as in it.
func (s *Series) Set(at schema.KTime, bytes uint64) {
	if w := uint64(at / s.width); w > s.current {
		s.advance(w)
	}
	s.live = bytes
	low := &s.minima[s.current%slots]
	*low = min(*low, bytes)
}

// Restore adds memory that a restored snapshot has as live. It changes no minimum.
func (s *Series) Restore(since schema.KTime, bytes uint64) {
	s.live += bytes
	s.born(uint64(since/s.width), bytes)
}

// Move gives live memory a later time of allocation.
func (s *Series) Move(since, to schema.KTime, bytes uint64) {
	if w := uint64(to / s.width); w > s.current {
		s.advance(w)
	}
	s.born(uint64(since/s.width), -bytes)
	s.born(uint64(to/s.width), bytes)
}

// born adds bytes to those that were allocated in window w.
func (s *Series) born(w, bytes uint64) {
	if s.current-w < slots {
		s.births[w%slots] += bytes
	}
}

// advance begins window w and all windows before it.
func (s *Series) advance(w uint64) {
	for i := max(s.current+1, w-min(w, slots-1)); i <= w; i++ {
		s.minima[i%slots], s.births[i%slots] = s.live, 0
	}
	s.current, s.start, s.before = w, schema.KTime(w)*s.width, s.live
}

// shift adds bytes to the level of every window after w, which is before the current one.
func (s *Series) shift(w, bytes uint64) {
	s.before += bytes
	for i := max(w+1, s.current-min(s.current, slots-1)); i <= s.current; i++ {
		s.minima[i%slots] += bytes
	}
}

// minimum returns the lowest live bytes of a window. A series knows only the newest windows, and whole ones.
func (s *Series) minimum(w uint64) (bytes uint64, known bool) {
	switch {
	case w > s.current:
		return s.live, true
	case w < s.first || s.current-w >= slots:
		return 0, false
	}
	return s.minima[w%slots], true
}

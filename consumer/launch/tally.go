package launch

import (
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// tally counts launches: all, and those of two minutes.
type tally struct {
	launches uint64
	minute   uint64 // the latest with launches
	latest   uint64 // launches of that minute
	before   uint64 // launches of the minute before it
}

// minuteOf returns the number of the minute of a time since boot.
func minuteOf(t schema.KTime) uint64 { return uint64(t) / 60e9 }

func (t *tally) add(n, minute uint64) {
	t.launches += n
	switch {
	case minute == t.minute:
		t.latest += n
	case minute == t.minute+1:
		t.minute, t.before, t.latest = minute, t.latest, n
	case minute > t.minute:
		t.minute, t.before, t.latest = minute, 0, n
	case minute+1 == t.minute:
		t.before += n
	}
}

// in returns the launches of a minute, 0 if it is not one of the two.
func (t *tally) in(minute uint64) uint64 {
	switch {
	case minute == t.minute:
		return t.latest
	case minute+1 == t.minute:
		return t.before
	}
	return 0
}

func (t *tally) code(c *snapshot.Codec) {
	snapshot.Uint(c, &t.launches, &t.minute, &t.latest, &t.before)
}

// clock is the event time of one host.
type clock struct {
	boot string
	now  schema.KTime // the latest time of an event or heartbeat
}

// advance notes that a host has reached a time of a boot.
func (h *Histogram) advance(b *schema.Header, now schema.KTime) {
	id := snapshot.HostID{Cluster: b.Cluster, Host: b.Host}
	c := h.clocks[id]
	if c == nil {
		c = &clock{}
		h.clocks[id] = c
	}
	if c.boot != b.BootID {
		*c = clock{boot: b.BootID}
	}
	c.now = max(c.now, now)
}

// complete returns the last complete minute of a boot of a host; false if the boot is over, or in its first minute.
func (h *Histogram) complete(id schema.ProcessID) (minute uint64, known bool) {
	c := h.clocks[snapshot.HostID{Cluster: id.Cluster, Host: id.Host}]
	if c == nil || c.boot != id.BootID || minuteOf(c.now) == 0 {
		return 0, false
	}
	return minuteOf(c.now) - 1, true
}

// Tick notes that all launches of a host up to a time were applied.
func (h *Histogram) Tick(b *schema.Header, through schema.KTime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(b, through)
}

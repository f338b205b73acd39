package job

import (
	"cmp"
	"maps"

	"github.com/gputap/gputap/schema"
)

const (
	maxShift    = 10 // windows by which hosts may differ
	windowNanos = int64(schema.RankWindow)
)

// clocks tells in which window of a job a window of a host lies, for clocks that may be wrong. A host is known if an
// earlier batch of its boot was placed. A window is near if it lies within 20 s of the newest one of the job. A
// newcomer is a process that is not the member of its rank; on an unknown host it counts only if its rank has another
// member.
//
//	host     window  newcomer                         decision
//	any      far     started after the newest window  restarted: the shift stays, and the job starts again
//	known    far     window before the job started    stale: nothing changes; the processes are earlier ones
//	known    near, or at most a minute off            here: the shift stays; the host or its shard may be late
//	known    further off                              here: by a new shift, if that puts the window next to the newest
//	unknown  any                                      here: by a new shift, if its clock is wrong
type clocks struct {
	shifts  map[boot]int64 // what to add to the numbers of windows of hosts
	newest  int64          // number of the newest window
	started int64          // number of the window in which the first process started, since the job last started
	next    int64          // number after the last window that is closed
}

// boot is one boot of a host.
type boot struct{ host, id string }

func (b boot) compare(to boot) int {
	return cmp.Or(cmp.Compare(b.host, to.host), cmp.Compare(b.id, to.id))
}

// numberOf returns the number of the window that begins at a time.
func numberOf(b *schema.Batch, t schema.KTime) int64 {
	return (b.Wall(t).UnixNano() + windowNanos/2) / windowNanos
}

// place returns what to add to the numbers of the windows of a batch. again is a process with which the job started
// again, nil if it did not.
func (c *clocks) place(b *schema.Batch, members map[uint32]*member) (shift int64, again *schema.Process) {
	host, number, started := boot{b.Origin, b.BootID}, numberOf(b, b.Last), numberOf(b, b.Processes[0].Start)
	if c.newest == 0 {
		c.newest, c.started = number, started
	}
	shift, known := c.shifts[host]
	distance := c.distance(number + shift)
	if distance > maxShift {
		if p := newcomer(b, members, known); p != nil {
			switch begun := numberOf(b, p.Start) + shift; {
			case begun > c.newest: // restarted
				c.restart(begun, members)
				c.shifts[host], c.newest = shift, number+shift
				return shift, p
			case known && number+shift < c.started: // stale
				return shift, nil
			}
		}
	}
	if !known || distance > maxOpen {
		shift = c.correct(number, started-c.started, shift, known)
	}
	c.shifts[host] = shift
	c.newest = max(c.newest, number+shift)
	return shift, nil
}

// newcomer returns a newcomer among the processes of a batch, nil if there is none. One whose rank has another member
// comes first.
func newcomer(b *schema.Batch, members map[uint32]*member, known bool) (found *schema.Process) {
	for i := range b.Processes {
		p := &b.Processes[i]
		if p.Rank == 0 || p.Rank > maxRanks {
			continue
		}
		switch m := members[p.Rank-1]; {
		case m == nil && found == nil && known:
			found = p
		case m != nil && m.ID != idOf(b, p):
			return p
		}
	}
	return found
}

// distance returns how far a window is from the newest one of the job.
func (c *clocks) distance(number int64) int64 { return max(number-c.newest, c.newest-number) }

// correct returns the shift of a host whose clock may be wrong. off is by how many windows its process started after
// the first one of the job: if both started together, that is the error of the clock.
func (c *clocks) correct(number, off, shift int64, known bool) int64 {
	right, wrong := c.distance(number), c.distance(number-off)
	switch {
	case max(off, -off) <= maxShift, right <= min(wrong, maxOpen):
		return 0
	case wrong <= maxOpen:
		return -off
	case known:
		return shift
	}
	return c.newest - number
}

// restart closes the windows of the earlier processes, also those that a late shard still sends. begun is the number of
// the window in which a process started.
func (c *clocks) restart(begun int64, members map[uint32]*member) {
	c.next, c.started = max(c.newest+1, begun-1), begun
	c.trim(len(members), members)
}

// trim drops the clocks of boots without a rank, if the job knows more clocks than most.
func (c *clocks) trim(most int, members map[uint32]*member) {
	if len(c.shifts) <= most {
		return
	}
	here := make(map[boot]bool, len(members))
	for _, m := range members {
		here[boot{m.ID.Host, m.ID.BootID}] = true
	}
	maps.DeleteFunc(c.shifts, func(of boot, _ int64) bool { return !here[of] })
}

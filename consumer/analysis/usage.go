package analysis

import "time"

// Usage calls visit after every change of the memory of a process that keep selects, in order, with the time and the
// live bytes of its groups. Memory from before the range is one change at its beginning. Usage stops when visit returns
// false. A nil keep selects all.
func (p *Process) Usage(keep func(*Group) bool, visit func(at time.Time, bytes uint64) bool) error {
	selected := make([]bool, len(p.Groups))
	for i := range p.Groups {
		selected[i] = keep == nil || keep(&p.Groups[i])
	}
	live, before, ended := uint64(0), false, false
	flush := func() bool {
		before = false
		return visit(p.wall(p.begin), live)
	}
	err := p.each(func(c *change) bool {
		if !selected[c.group&^freed] {
			return true
		}
		if before && c.at >= p.begin && !flush() {
			ended = true
			return false
		}
		if c.group&freed != 0 {
			live -= c.bytes
		} else {
			live += c.bytes
		}
		if c.at < p.begin {
			before = true
			return true
		}
		ended = !visit(p.wall(c.at), live)
		return !ended
	})
	if err == nil && before && !ended {
		flush()
	}
	return err
}

// OnGPU selects the groups of one GPU of the process.
func OnGPU(gpu int) func(*Group) bool { return func(g *Group) bool { return g.GPU == gpu } }

// Allocations calls visit with the group and the bytes of every allocation, in order, without those from before the
// range.
func (p *Process) Allocations(visit func(g *Group, bytes uint64)) error {
	return p.each(func(c *change) bool {
		if c.group&freed == 0 && c.at > p.begin { // begin is that of the last event before the range
			visit(&p.Groups[c.group], c.bytes)
		}
		return true
	})
}

package analysis

import "time"

// Usage calls visit after every change of the memory of a process that keep selects, in order, with the time and the
// live bytes of its groups. Memory from before the range is one change at its beginning. Usage stops when visit returns
// false. A nil keep selects all.
func (p *Process) Usage(keep func(*Group) bool, visit func(at time.Time, bytes uint64) bool) error {
	if keep == nil {
		keep = func(*Group) bool { return true }
	}
	return p.Classes([]func(*Group) bool{keep}, func(at time.Time, bytes []uint64) bool { return visit(at, bytes[0]) })
}

// Classes is Usage for several classes of groups at once. A group belongs to the first class that keeps it. visit gets
// the live bytes of each class, and must not keep them.
func (p *Process) Classes(classes []func(*Group) bool, visit func(at time.Time, bytes []uint64) bool) error {
	of := make([]int, len(p.Groups)) // class by group; -1: none
	for i := range p.Groups {
		of[i] = -1
		for class := len(classes) - 1; class >= 0; class-- {
			if classes[class](&p.Groups[i]) {
				of[i] = class
			}
		}
	}
	live, before, ended := make([]uint64, len(classes)), false, false
	err := p.each(func(c *change) bool {
		class := of[c.group&^freed]
		if class < 0 {
			return true
		}
		if before && !p.isBefore(c) {
			if before = false; !visit(p.wall(p.begin), live) {
				ended = true
				return false
			}
		}
		if c.group&freed != 0 {
			live[class] -= c.bytes
		} else {
			live[class] += c.bytes
		}
		if p.isBefore(c) {
			before = true
			return true
		}
		ended = !visit(p.wall(c.at), live)
		return !ended
	})
	if err == nil && before && !ended {
		visit(p.wall(p.begin), live)
	}
	return err
}

// OnGPU selects the groups of one GPU of the process.
func OnGPU(gpu int) func(*Group) bool { return func(g *Group) bool { return g.GPU == gpu } }

// Allocations calls visit with the group and the bytes of every allocation, in order, without those from before the
// range.
func (p *Process) Allocations(visit func(g *Group, bytes uint64)) error {
	return p.each(func(c *change) bool {
		if c.group&freed == 0 && !p.isBefore(c) {
			visit(&p.Groups[c.group], c.bytes)
		}
		return true
	})
}

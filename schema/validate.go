package schema

import (
	"encoding/binary"
	"fmt"
)

// validate checks what folds rely on: column lengths, indices, and numbers of 32 bits.
func (b *Batch) validate() error {
	for id := range b.columns {
		c := &b.columns[id]
		switch c.Width {
		case 0, 1, 2, 4, 8:
		default:
			return fmt.Errorf("%w: column %q: width %d", ErrMalformed, columnKeys[id], c.Width)
		}
		if want := int(c.Width) * b.Events; len(c.Data) != want {
			return fmt.Errorf("%w: column %q: %d bytes, want %d", ErrMalformed, columnKeys[id], len(c.Data), want)
		}
	}
	for i := range b.Threads {
		if int(b.Threads[i].Process) >= len(b.Processes) {
			return fmt.Errorf("%w: thread %d: process index out of range", ErrMalformed, i)
		}
	}
	for i := range b.Shapes {
		s := &b.Shapes[i]
		if int(s.Call) >= len(b.Calls) || int(s.Func) >= len(b.Funcs) {
			return fmt.Errorf("%w: shape %d: call or function index out of range", ErrMalformed, i)
		}
	}
	for i := range b.Contexts {
		if int(b.Contexts[i].GPU) > len(b.GPUs) {
			return fmt.Errorf("%w: context %d: GPU index out of range", ErrMalformed, i)
		}
	}
	for i := range b.Graphs {
		g := &b.Graphs[i]
		if int(g.Func) >= len(b.Funcs) {
			return fmt.Errorf("%w: graph %d: function index out of range", ErrMalformed, i)
		}
		for _, n := range g.Nodes {
			if int(n.Func) >= len(b.Funcs) {
				return fmt.Errorf("%w: graph %d: function index of a node out of range", ErrMalformed, i)
			}
		}
	}
	for i := range b.Coverage {
		if int(b.Coverage[i].Process) >= len(b.Processes) {
			return fmt.Errorf("%w: coverage %d: process index out of range", ErrMalformed, i)
		}
	}
	if b.Events == 0 || b.Kind == KindNone {
		return nil
	}
	for _, id := range kindColumns[b.Kind] {
		if c := &Columns[id]; c.Bits == 32 && !b.columns[id].below(b.limit(c), b.Events) {
			return fmt.Errorf("%w: column %q: index or number out of range", ErrMalformed, c.Key)
		}
	}
	return nil
}

// limit returns the number of valid values of a column of 32 bits.
func (b *Batch) limit(c *ColumnSpec) uint64 {
	if c.Content != ContentIndex {
		return 1 << 32
	}
	n := uint64(b.entries(c.Dictionary))
	if c.Optional {
		n++
	}
	return n
}

// below reports whether the first n values are below limit. It compares without adding Base, which could wrap.
func (c *Column) below(limit uint64, n int) bool {
	if c.Base >= limit {
		return false
	}
	room := limit - c.Base
	switch c.Width {
	case 1:
		for _, v := range c.Data {
			if uint64(v) >= room {
				return false
			}
		}
	case 2:
		for i := range n {
			if uint64(binary.LittleEndian.Uint16(c.Data[2*i:])) >= room {
				return false
			}
		}
	case 4:
		for i := range n {
			if uint64(binary.LittleEndian.Uint32(c.Data[4*i:])) >= room {
				return false
			}
		}
	case 8:
		for i := range n {
			if binary.LittleEndian.Uint64(c.Data[8*i:]) >= room {
				return false
			}
		}
	}
	return true
}

package leak

import "github.com/gputap/gputap/schema"

// origins numbers the calls of the whole fleet: a few dozen. The first numbers are one per memory
// class without a symbol, for the calls of a fleet that names too many.
type origins struct {
	rows  []schema.CallRef
	index map[schema.CallRef]uint8
}

func newOrigins() origins {
	o := origins{index: map[schema.CallRef]uint8{}}
	for c := range schema.NumClasses {
		o.rows = append(o.rows, schema.CallRef{Class: c})
	}
	return o
}

func (o *origins) number(ref schema.CallRef) uint8 {
	if i, ok := o.index[ref]; ok {
		return i
	}
	if len(o.rows) == 256 {
		return uint8(ref.Class)
	}
	i := uint8(len(o.rows))
	o.rows = append(o.rows, ref)
	o.index[ref] = i
	return i
}

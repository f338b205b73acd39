package leak

import "github.com/gputap/gputap/schema"

// origins numbers the calls that the whole fleet makes, a few dozen. The first numbers stand for one memory class
// each, without a symbol: they are used when the fleet names more than 256 calls.
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

package attach

import (
	"slices"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// Features choose the calls to probe.
type Features struct {
	kinds       map[schema.Kind]bool
	entriesOnly bool
}

// NewFeatures chooses the calls that the events of some kinds need. entriesOnly leaves out calls that need a return
// probe: set it where return probes are not safe.
func NewFeatures(kinds []schema.Kind, entriesOnly bool) Features {
	f := Features{kinds: map[schema.Kind]bool{}, entriesOnly: entriesOnly}
	for _, k := range kinds {
		f.kinds[k] = true
	}
	return f
}

// Wants reports whether events of a kind are wanted.
func (f Features) Wants(kind schema.Kind) bool { return f.kinds[kind] }

// calls lists the rows of the call table to probe in a library.
func (f Features) calls(library string) []schema.CallID {
	var ids []schema.CallID
	for id := range schema.Calls {
		c := &schema.Calls[id]
		if c.Library == library && c.Needs(f.kinds) && (!f.entriesOnly || c.Shape.EntryOnly()) {
			ids = append(ids, schema.CallID(id))
		}
	}
	return ids
}

// omits reports whether a call of the table has no probe because no wanted kind needs it.
func (f Features) omits(symbol string) bool {
	return slices.ContainsFunc(schema.Calls, func(c schema.Call) bool {
		return c.Symbol == symbol && !c.Needs(f.kinds)
	})
}

// cookie is the value that a probe of a call hands to its programs. Calls of CUDA events are always probed, since they
// spread captures; they write no records when no sync events are wanted.
func (f Features) cookie(id schema.CallID) uint64 {
	c := &schema.Calls[id]
	v := uint64(id) | uint64(c.Shape)<<bpf.CookieShape | uint64(c.CUDAStream)<<bpf.CookieStream
	if c.PerThread() {
		v |= bpf.CookiePerThread
	}
	if c.Kind == schema.KindSync && !f.kinds[schema.KindSync] {
		v |= bpf.CookieQuiet
	}
	return v
}

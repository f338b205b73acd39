package nsys

import (
	"slices"
	"strconv"

	"github.com/gputap/gputap/schema"
)

// Unknown is memory events of a kind that gputap does not know: they count as neither GPU nor host memory.
type Unknown struct {
	Kind      string // in capitals; its number if the export does not name it; "": the events have none
	Events    uint64
	Allocated uint64 // bytes of the allocations
}

// mostUnknown bounds the named kinds. The others are added up.
const (
	mostUnknown  = 8
	otherUnknown = "and others"
)

// noteKind counts a memory event of an unknown kind.
func (m *memory) noteKind(row []any, op schema.Op) {
	kind := m.kinds.word(row[memKind])
	if id, ok := row[memKind].(int64); ok && kind == "" {
		kind = strconv.FormatInt(id, 10)
	}
	at := slices.IndexFunc(m.UnknownKinds, func(u Unknown) bool { return u.Kind == kind })
	if at < 0 && len(m.UnknownKinds) > mostUnknown {
		at = mostUnknown
	}
	if at < 0 {
		if at = len(m.UnknownKinds); at == mostUnknown {
			kind = otherUnknown
		}
		m.UnknownKinds = append(m.UnknownKinds, Unknown{Kind: kind})
	}
	u := &m.UnknownKinds[at]
	if u.Events++; op == schema.OpAlloc {
		u.Allocated += bits(row[memBytes])
	}
	m.NoKinds = m.kinds.absent
}

// noteOperation counts a memory event of an unknown operation.
func (m *memory) noteOperation() {
	m.UnknownOps++
	m.NoOps = m.ops.absent
}

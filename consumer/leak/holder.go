package leak

import (
	"strings"

	"github.com/gputap/gputap/schema"
)

const (
	maxExports = 4096    // per host; the newest are kept
	minToken   = 1 << 32 // smaller tokens are file descriptors, which are private to one process
)

// open adds a holder: memory of another process or another API that becomes usable here. Its bytes are counted where
// it was allocated. The end of a context closes what cuIpcOpenMemHandle opened in it (measured: driver 580, H200).
// Imported pool pointers have the same class but belong to no context.
func (t *Tracker) open(p *proc, m *schema.Memory) {
	s, class := &p.State, t.in.Calls[m.Call].Class
	x := &s.addresses
	if class == schema.ClassVMM {
		x = &s.handles
	}
	if old := x.find(&t.slab, m.Ptr); old != 0 && class == schema.ClassIPC {
		if a := t.slab.at(old); a.kind == opened && a.bytes == m.Aux {
			a.refs.up() // the driver returns the same address again and counts references
			return
		}
	}
	i := t.insert(p, x, m)
	if i == 0 {
		return
	}
	a := t.slab.at(i)
	a.kind, a.bytes = opened, m.Aux
	if strings.HasPrefix(t.in.Calls[m.Call].Symbol, "cuIpc") {
		a.owner = t.context(p, m)
	}
	s.count(a, &t.threads.slots[a.thread], 1)
	t.slab.link(&s.newestHolder, i)
}

// close ends a holder.
func (t *Tracker) close(p *proc, m *schema.Memory) {
	x := &p.State.addresses
	i := x.find(&t.slab, m.Ptr)
	switch {
	case i == 0 || t.slab.at(i).kind != opened:
		t.count(p, unmatchedFree)
	case m.Time < t.slab.at(i).since:
		t.count(p, lateFree)
	case t.slab.at(i).refs.down():
		t.drop(p, x, i)
	}
}

// exports stores which process exported each token of a host.
type exports struct {
	owners map[uint64]uint32 // PID by token
	tokens []uint64          // oldest first
}

// export stores a token. The driver returns the same token every time the same memory is exported.
func (t *Tracker) export(p *proc, m *schema.Memory) {
	p.State.exports++
	if m.Aux >= minToken {
		p.State.boot.exports.add(m.Aux, p.ID.PID)
	}
}

func (x *exports) add(token uint64, owner uint32) {
	if x.owners == nil {
		x.owners = map[uint64]uint32{}
	}
	if _, known := x.owners[token]; !known {
		if len(x.tokens) == maxExports {
			delete(x.owners, x.tokens[0])
			x.tokens = x.tokens[1:]
		}
		x.tokens = append(x.tokens, token)
	}
	x.owners[token] = owner
}

package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gputap/gputap/consumer/snapshot"
)

const maxHolders = 3 // that a failure keeps, and a message names

// holder is a process that holds memory of a GPU, by its large allocations.
type holder struct {
	pid   uint32
	comm  string
	bytes uint64
}

func (h holder) compare(to holder) int {
	return cmp.Or(cmp.Compare(to.bytes, h.bytes), cmp.Compare(h.pid, to.pid))
}

// note keeps who holds the GPU at a failure: the process itself, and the largest others.
func (r *oom) note(e *Event, f *failure) {
	if f.onHost {
		return
	}
	of := &e.Process.State.gpus[e.GPU]
	f.held, f.tensors, f.others = of.live, of.tensors, f.others[:0]
	if of.name == "" {
		f.held = 0 // that may be memory of several GPUs
	}
	if e.Process.State.UUID(e.GPU) == "" {
		return
	}
	r.set.scratch = r.set.of(r.set.scratch[:0], f.alert.HostID())
	for _, p := range r.set.scratch {
		for i := range p.State.gpus {
			// the ends of the processes before a reboot may not have been seen
			here := p != e.Process && p.ID.BootID == e.Process.ID.BootID
			if g := &p.State.gpus[i]; here && g.name == of.name && g.live > 0 {
				f.hold(holder{p.ID.PID, p.Comm, g.live})
			}
		}
	}
}

// hold adds a holder if it is one of the largest.
func (f *failure) hold(h holder) {
	i, _ := slices.BinarySearchFunc(f.others, h, holder.compare)
	if i == maxHolders {
		return
	}
	if f.others == nil {
		f.others = make([]holder, 0, maxHolders)
	}
	f.others = slices.Insert(f.others[:min(len(f.others), maxHolders-1)], i, h)
}

// holders tells who held the GPU when the driver refused.
func (f *failure) holders(s *State) string {
	if s.gpus[f.gpu].name == "" {
		return "The GPU is unknown; the report of gputap-leak has the processes that hold GPUs."
	}
	when := "At the refusal"
	if f.alert.Repeats > 0 {
		when = "At the last refusal"
	}
	held := "no allocation of 1 MiB or more"
	if f.held > 0 {
		held = iec(float64(f.held))
	}
	text := fmt.Sprintf("%s it held %s of %s itself", when, held, cmp.Or(f.alert.GPU, "the GPU"))
	if len(f.others) == 0 && (f.held == 0 || f.alert.GPU == "") {
		return text + "; the report of gputap-leak has the processes that hold the GPU."
	}
	if len(f.others) == 0 {
		return text + "; no other process was known to hold memory there."
	}
	names := make([]string, len(f.others))
	for i, h := range f.others {
		names[i] = fmt.Sprintf("%s (pid %d) %s", h.comm, h.pid, iec(float64(h.bytes)))
	}
	return text + "; the largest other holders were " + strings.Join(names, ", ") + "."
}

func codeHolders(c *snapshot.Codec, all *[]holder) {
	snapshot.List(c, all, 3, func(h *holder) {
		snapshot.Uint(c, &h.pid)
		c.String(&h.comm)
		snapshot.Uint(c, &h.bytes)
	})
	if len(*all) > maxHolders {
		c.Fail("more than %d holders", maxHolders)
	}
}

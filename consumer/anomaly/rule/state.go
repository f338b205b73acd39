package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Process is a process with the state of the rules.
type Process = process.Entry[State]

// State is the state of all rules about one process.
type State struct {
	Allocations uint64 // of GPU memory that succeeded

	known    bool // Begin was called
	late     bool // it may have made calls before
	gpus     []gpu
	large    large
	counts   open[Counts]
	launched schema.KTime // some kernel was launched at that time or later

	sizes     sizes
	failures  []failure
	allocs    allocState
	launches  launchState
	routes    []route
	routeKeys []uint32 // of the routes, to find one fast
	pageable  streak
}

// Launched tells that the process launched kernels at a time or later.
func (s *State) Launched(at schema.KTime) { s.launched = max(s.launched, at) }

// Counts are the calls and copies of a process in one window.
type Counts struct {
	Allocs   uint64
	Launches uint64 // of kernels, those in graphs included
	Copied   uint64 // bytes of large copies between host and GPU
	Pageable uint64 // the part of Copied from or to pageable memory
	Unknown  bool   // graphs ran whose kernels are not all known
}

// gpu is a GPU that the process named, with its live large allocations.
type gpu struct {
	name string // its UUID; of an unknown UUID its ordinal, as in ordinals; "": both are unknown
	size uint64 // 0: unknown
	live uint64 // bytes

	tensors tensors
}

// maxGPUs limits the GPUs of a process. Further ones count as the last.
const maxGPUs = 32

// ordinals are the names of GPUs of unknown UUIDs, by their numbers in the process.
var ordinals = func() (names [maxGPUs]string) {
	for i := range names {
		names[i] = fmt.Sprint("#", i)
	}
	return names
}()

// Renew begins anew: the process has a new image, of which everything was seen. Alerts about memory that ran out fire
// on, with the GPUs that they name.
func (s *State) Renew(h *Host) {
	before := *s
	*s = State{known: true, sizes: sizes{gaps: h.gaps}, failures: before.failures}
	if len(s.failures) > 0 {
		s.gpus = before.gpus
	}
	for i := range s.gpus {
		s.gpus[i].tensors = tensors{}
	}
}

// Watched reports whether rules must see every successful allocation of the process, not only the large ones.
func (s *State) Watched() bool { return len(s.failures) > 0 }

// HasLarge reports whether the process has live large allocations.
func (s *State) HasLarge() bool { return len(s.large) > 0 }

// GPU returns the index of a GPU of a batch; index is 0 if it is unknown, else 1 + an index into b.GPUs.
func (s *State) GPU(b *schema.Batch, index uint32) int {
	var of schema.GPU
	name := ""
	if index > 0 {
		of = b.GPUs[index-1]
		name = cmp.Or(of.UUID, ordinals[min(of.Ordinal, maxGPUs-1)])
	}
	for i := range s.gpus {
		if s.gpus[i].name == name {
			s.gpus[i].size = max(s.gpus[i].size, of.Bytes)
			return i
		}
	}
	if len(s.gpus) == maxGPUs {
		return maxGPUs - 1
	}
	s.gpus = append(s.gpus, gpu{name: name, size: of.Bytes})
	return len(s.gpus) - 1
}

// UUID returns the UUID of a GPU, "" if unknown.
func (s *State) UUID(gpu int) string {
	if s.unnamed(gpu) != "" {
		return ""
	}
	return s.gpus[gpu].name
}

// unnamed returns the ordinal of a GPU whose UUID is unknown, as in ordinals; "": its UUID is known, or its ordinal is
// unknown, too.
func (s *State) unnamed(gpu int) string {
	if name := s.gpus[gpu].name; strings.HasPrefix(name, "#") {
		return name
	}
	return ""
}

// Tensors tells the totals of PyTorch's allocator on a GPU at a time.
func (s *State) Tensors(gpu int, at schema.KTime, allocated, reserved uint64) {
	now := tensors{at, allocated, reserved}
	if at >= s.gpus[gpu].tensors.at {
		s.gpus[gpu].tensors = now
	}
	for i := range s.failures {
		if f := &s.failures[i]; !f.onHost && f.gpu == gpu && at <= f.last {
			f.tensors = now
		}
	}
}

// live returns the bytes of the live large allocations on all GPUs.
func (s *State) live() (sum uint64) {
	for i := range s.gpus {
		sum += s.gpus[i].live
	}
	return sum
}

// At returns the counts of a window, to be added to; nil if newer windows have displaced it.
func (s *State) At(index Index) *Counts {
	return s.counts.at(index)
}

// Code passes over the state.
func (s *State) Code(c *snapshot.Codec, id snapshot.HostID) {
	snapshot.Uint(c, &s.Allocations)
	snapshot.Uint(c, &s.launched)
	c.Bool(&s.known, &s.late)
	snapshot.List(c, &s.gpus, 6, func(g *gpu) {
		c.String(&g.name)
		snapshot.Uint(c, &g.size, &g.live)
		g.tensors.code(c)
	})
	if len(s.gpus) > maxGPUs {
		c.Fail("more than %d GPUs", maxGPUs)
	}
	s.large.code(c, len(s.gpus))
	s.counts.code(c, 5, func(n *Counts) {
		snapshot.Uint(c, &n.Allocs, &n.Launches, &n.Copied, &n.Pageable)
		c.Bool(&n.Unknown)
	})
	s.sizes.code(c, id)
	codeFailures(c, s, id)
	s.allocs.code(c)
	s.launches.code(c)
	codeRoutes(c, s)
	s.pageable.code(c)
}

// Host is the state of all rules about one host.
type Host struct {
	boot   string
	offset int64 // wall clock minus boot time: a later boot has a larger one
	run    uint64
	next   Index        // window that the next tick closes first; 0: none was closed yet
	frozen Index        // 1 + index of the last window that lost events; 0: none
	gaps   uint64       // interruptions of the memory events
	gapAt  schema.KTime // the last one
	latest schema.KTime
	seen   [schema.NumKinds]uint64  // run of the last batch of each kind
	lost   [schema.NumLosses]uint64 // counters of the run
	spans  open[spans]
	loss   losses
}

// spans are the batches with events of one window, by kind.
type spans [schema.NumKinds]struct{ from, to uint64 }

// Sees takes note of a batch before its events. It returns false for a batch of an earlier boot, which does not count.
func (h *Host) Sees(b *schema.Batch) bool {
	switch {
	case h.boot == "":
		h.boot, h.run, h.lost = b.BootID, b.Run, b.Lost
	case b.BootID != h.boot && b.ClockOffset < h.offset:
		return false
	case b.BootID != h.boot:
		*h = Host{boot: b.BootID, run: b.Run, gaps: h.gaps + 1, loss: h.loss}
		h.loss.last = b.Last // the clock began anew
	case b.Run > h.run: // the producer was restarted: calls in between were not seen
		h.run, h.lost = b.Run, [schema.NumLosses]uint64{}
		h.gap()
		h.freeze(schema.KTime(b.Run))
	}
	h.offset = b.ClockOffset
	if b.Events > 0 {
		h.latest = max(h.latest, b.Last)
		h.span(IndexOf(b.First), &b.Header)
		h.span(IndexOf(b.Last), &b.Header)
	}
	if b.Run == h.run && b.Lost != h.lost {
		h.loses(&b.Header, b.Through())
	}
	if h.loss.missed > 0 {
		h.misses(&b.Header)
	}
	h.seen[b.Kind] = b.Run
	h.loss.events += uint64(b.Events)
	return true
}

func (h *Host) span(index Index, b *schema.Header) {
	if s := h.spans.at(index); s != nil {
		of := &s[b.Kind]
		if of.from == 0 {
			of.from = b.Seq
		}
		of.to = b.Seq
	}
}

// loses adds the growth of the loss counters. A heartbeat counts what was lost through a time, after the latest event.
func (h *Host) loses(b *schema.Header, through schema.KTime) {
	for cause, n := range b.Lost {
		if n <= h.lost[cause] {
			continue
		}
		h.loss.lost[cause] += n - h.lost[cause]
		h.lost[cause] = n
		if l := schema.Loss(cause); l != schema.LossBulkRing && l != schema.LossTensorRing {
			h.gap()
		}
	}
	h.loss.reported(b)
	h.freeze(max(h.latest, schema.KTime(b.Run), through))
}

// Misses takes note of batches that will never come. The next batch is the one after them.
func (h *Host) Misses(batches uint64) {
	h.loss.missed += batches
	h.gap()
	h.freeze(h.latest)
}

// misses counts the missing batches before b as lost, unless b is the first of its kind and run: then they may be from
// before the fold began to read.
func (h *Host) misses(b *schema.Header) {
	if h.seen[b.Kind] == b.Run {
		h.loss.missing += h.loss.missed
		h.loss.reported(b)
	}
	h.loss.missed = 0
	h.gapAt = max(h.gapAt, b.First)
}

// gap takes note of an interruption of the memory events.
func (h *Host) gap() {
	h.gaps++
	h.gapAt = max(h.gapAt, h.latest)
}

// Begin takes note of the host's interruptions when a process is first seen.
func (h *Host) Begin(p *Process) {
	if s := &p.State; !s.known {
		s.Renew(h)
		s.late = p.Late || p.ID.Start < h.gapAt
	}
}

// freeze excludes the windows up to that of t.
func (h *Host) freeze(t schema.KTime) { h.frozen = max(h.frozen, IndexOf(t)+1) }

// Code passes over the state.
func (h *Host) Code(c *snapshot.Codec) {
	c.String(&h.boot)
	snapshot.Int(c, &h.offset)
	snapshot.Uint(c, &h.run, &h.gaps)
	snapshot.Uint(c, &h.next, &h.frozen)
	snapshot.Uint(c, &h.latest, &h.gapAt)
	for i := range h.seen {
		snapshot.Uint(c, &h.seen[i])
	}
	codeLosses(c, &h.lost)
	h.spans.code(c, 2*int(schema.NumKinds), func(s *spans) {
		for i := range s {
			snapshot.Uint(c, &s[i].from, &s[i].to)
		}
	})
	h.loss.code(c)
}

func codeLosses(c *snapshot.Codec, lost *[schema.NumLosses]uint64) {
	for i := range lost {
		snapshot.Uint(c, &lost[i])
	}
}

// maxCatchUp is the most windows that one tick closes one by one. After a longer silence of the heartbeats, the windows
// before are not judged.
const maxCatchUp = 90

// Tick closes the windows of a host that end at through or before, and then lets the rules look at the time.
func (s *Set) Tick(header *schema.Header, h *Host, all []*Process, through schema.KTime) {
	if header.BootID != h.boot {
		return
	}
	t := &Tick{Header: header, Host: h, Through: through}
	for _, p := range all {
		if p.ID.BootID != h.boot {
			s.book.ClearProcess(p.ID, t.now(), "the host was restarted", nil)
		}
	}
	t.Processes = slices.DeleteFunc(all, func(p *Process) bool { return p.ID.BootID != h.boot })
	end := IndexOf(through)
	if h.next == 0 || end > h.next+maxCatchUp {
		h.next = end
		h.frozen = max(h.frozen, end)
	}
	for ; h.next < end; h.next++ {
		s.window(t, h.next)
	}
	for _, r := range s.rules {
		r.Tick(t)
	}
	for _, name := range s.off { // an alert fired before the program started again
		s.book.ClearAged(t.id(), name, 0, t.now(), "the rule is off")
	}
	s.book.ClearExcluded(t.id(), &s.exclude, t.now())
	s.book.Advance(t.id(), t.now())
}

// window closes one window.
func (s *Set) window(t *Tick, index Index) {
	spans, _ := t.Host.spans.take(index)
	for _, p := range t.Processes {
		counts, known := p.State.counts.take(index)
		if p.Ended {
			continue
		}
		w := &Window{Tick: t, Process: p, Counts: counts, index: index, spans: spans}
		w.Complete = known && index+1 > t.Host.frozen
		for _, r := range s.rules {
			r.Window(w)
		}
		for i := range p.State.routes {
			p.State.routes[i].open.take(index)
		}
	}
}

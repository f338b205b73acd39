package launch

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Names of kernels whose name is unknown, and of everything above a limit.
const (
	unknown = "unknown"
	other   = "other"
)

const (
	maxNames       = 50_000 // in the cache
	maxShapes      = 8      // per kernel
	maxLabel       = 96     // bytes of a kernel label
	maxExecutables = 64     // executable graphs per process
)

// state is the launches of one process.
type state struct {
	began   schema.KTime       // start of the process, or its first batch if it is late
	last    schema.KTime       // its last event
	kernels map[string]*kernel // by mangled name
	other   tally              // launches of kernels above the limit

	graphs      tally
	partial     uint64 // the part of graphs with unknown kernels
	executables map[uint64]*executable
	recorded    uint64 // launches recorded into a graph
	hostFuncs   uint64
	gaps        gaps
}

type kernel struct {
	name       *name
	read       bool   // the producer read the name from the program's memory
	fromGraphs uint64 // the part of the launches made by graphs
	tally
	shapes []shape
}

// shape is one launch configuration of a kernel.
type shape struct {
	grid, block [3]uint32
	sharedBytes uint32
	tally
}

// executable is the launches of one executable graph.
type executable struct {
	tally
	kernels uint64 // that one launch runs, as last described
	partial bool   // it may run more
}

// add counts n launches. It returns nil for a kernel above the limit, whose launches count as other.
func (s *state) add(name *name, read bool, n uint64, minute uint64, bound int) *kernel {
	k := s.kernels[name.mangled]
	if k == nil {
		if len(s.kernels) >= bound {
			s.other.add(n, minute)
			return nil
		}
		if s.kernels == nil {
			s.kernels = map[string]*kernel{}
		}
		k = &kernel{name: name, read: read}
		s.kernels[name.mangled] = k
	}
	k.add(n, minute)
	k.read = k.read && read
	return k
}

func (k *kernel) addShape(s *schema.LaunchShape, n, minute uint64) {
	for i := range k.shapes {
		known := &k.shapes[i]
		if known.grid == s.Grid && known.block == s.Block && known.sharedBytes == s.SharedBytes {
			known.add(n, minute)
			return
		}
	}
	if len(k.shapes) < maxShapes {
		k.shapes = append(k.shapes, shape{grid: s.Grid, block: s.Block, sharedBytes: s.SharedBytes})
		k.shapes[len(k.shapes)-1].add(n, minute)
	}
}

// executable returns the executable graph of a handle; nil above the limit.
func (s *state) executable(handle uint64) *executable {
	x := s.executables[handle]
	if x == nil && len(s.executables) < maxExecutables {
		if s.executables == nil {
			s.executables = map[uint64]*executable{}
		}
		x = &executable{}
		s.executables[handle] = x
	}
	return x
}

// name is the three forms of a kernel's name.
type name struct {
	mangled string
	full    string // demangled
	label   string // demangled, without template arguments and parameters, at most maxLabel bytes
}

// names caches demangled names. A full cache is cleared.
type names map[string]*name

func (n names) lookup(mangled string) *name {
	if known := n[mangled]; known != nil {
		return known
	}
	if len(n) >= maxNames {
		clear(n)
	}
	fresh := &name{mangled: mangled, full: unknown, label: unknown}
	if mangled != "" {
		longest := demangle.MaxLength(10) // 2^10 bytes: a short mangled name may expand to a huge one
		fresh.full = process.Label(demangle.Filter(mangled, longest))
		fresh.label = process.Label(demangle.Filter(mangled, longest, demangle.NoParams, demangle.NoTemplateParams))
		fresh.label = strings.ToValidUTF8(fresh.label[:min(len(fresh.label), maxLabel)], "")
	}
	n[mangled] = fresh
	return fresh
}

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
	maxNames  = 50_000 // in the cache
	maxShapes = 8      // per kernel
	maxLabel  = 96     // bytes of a kernel label
)

// state is the launches of one process.
type state struct {
	kernels map[string]*kernel // by mangled name
	other   uint64             // launches of kernels above the limit

	graphs    uint64
	partial   uint64 // the part of graphs with unknown kernels
	recorded  uint64 // launches recorded into a graph
	hostFuncs uint64
}

type kernel struct {
	name       *name
	read       bool // the producer read the name from the program's memory
	launches   uint64
	fromGraphs uint64 // the part of launches made by graphs
	shapes     []Shape
}

// Shape is one launch configuration of a kernel.
type Shape struct {
	Grid        [3]uint32
	Block       [3]uint32
	SharedBytes uint32 // dynamic shared memory per block
	Launches    uint64
}

// add counts n launches. It returns nil for a kernel above the limit, whose launches count as other.
func (s *state) add(name *name, read bool, n uint64, bound int) *kernel {
	k := s.kernels[name.mangled]
	if k == nil {
		if len(s.kernels) >= bound {
			s.other += n
			return nil
		}
		if s.kernels == nil {
			s.kernels = map[string]*kernel{}
		}
		k = &kernel{name: name, read: read}
		s.kernels[name.mangled] = k
	}
	k.launches += n
	k.read = k.read && read
	return k
}

func (k *kernel) addShape(s *schema.LaunchShape, n uint64) {
	for i := range k.shapes {
		known := &k.shapes[i]
		if known.Grid == s.Grid && known.Block == s.Block && known.SharedBytes == s.SharedBytes {
			known.Launches += n
			return
		}
	}
	if len(k.shapes) < maxShapes {
		k.shapes = append(k.shapes, Shape{s.Grid, s.Block, s.SharedBytes, n})
	}
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

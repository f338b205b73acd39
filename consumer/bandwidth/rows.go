package bandwidth

import (
	"cmp"

	"github.com/gputap/gputap/schema"
)

// state is the copies, sets and waits of one process.
type state struct {
	rows     map[rowKey]*row
	waits    Waits
	recorded uint64 // copies and sets recorded into a graph
}

// A kind of row is a direction, or sets.
const (
	rowSet  = schema.NumDirections
	numRows = schema.NumDirections + 1
)

// sum adds up copies or sets.
type sum struct {
	calls uint64
	bytes uint64
	busy  uint64 // host time in the calls, ns; of ended copies their share of the time until a wait
}

// Add adds more.
func (s *sum) Add(more *sum) {
	s.calls += more.calls
	s.bytes += more.bytes
	s.busy += more.busy
}

// Waits counts calls that wait for the GPU.
type Waits struct {
	Calls uint64 // successful waits for contexts, CUDA streams and CUDA events
	NS    uint64 // host time in them, ns
}

// Add adds more.
func (w *Waits) Add(more *Waits) {
	w.Calls += more.Calls
	w.NS += more.NS
}

// row is the copies of one GPU, direction, size class and host memory of a process.
type row struct {
	sync, async sum
	ended       sum // the part of async whose end a wait showed; busy is a share of the time until then
	behind      sum // the same, for copies behind kernels
}

type rowKey struct {
	gpu     string           // UUID; "": unknown
	row     schema.Direction // or rowSet
	class   SizeClass
	hostMem schema.HostMem
}

// compare orders by GPU, then in the order of the constants.
func (k rowKey) compare(to rowKey) int {
	return cmp.Or(cmp.Compare(k.gpu, to.gpu), cmp.Compare(k.row, to.row), cmp.Compare(k.class, to.class),
		cmp.Compare(k.hostMem, to.hostMem))
}

// maxGPURows bounds the rows of a process with GPUs of their own: 8 GPUs use at most half of it.
const maxGPURows = 1 << 10

// row returns a row. Further GPUs count as an unknown one.
func (s *state) row(k rowKey) *row {
	r := s.rows[k]
	if r == nil && len(s.rows) >= maxGPURows {
		k.gpu = ""
		r = s.rows[k]
	}
	if r == nil {
		if s.rows == nil {
			s.rows = map[rowKey]*row{}
		}
		r = &row{}
		s.rows[k] = r
	}
	return r
}

// SizeClass groups copies by their bytes.
type SizeClass uint8

// Size classes, by their largest copy.
const (
	UpTo4KiB SizeClass = iota
	UpTo64KiB
	UpTo1MiB
	UpTo16MiB
	Above16MiB
	NumSizeClasses
)

var sizeWords = [NumSizeClasses]string{"<=4KiB", "<=64KiB", "<=1MiB", "<=16MiB", ">16MiB"}

// String returns the word in reports.
func (c SizeClass) String() string { return sizeWords[min(c, Above16MiB)] }

// classOf returns the size class of copies with up to 2^power bytes.
func classOf(power int) SizeClass { return SizeClass(min((max(power, 12)-9)/4, int(Above16MiB))) }

package launch

import (
	"cmp"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// program is the comm of a histogram. It belongs to no host: a histogram has many series.
type program string

// Owner returns no host.
func (program) Owner() snapshot.HostID { return snapshot.HostID{} }

// Other returns the comm of everything above the limit of series.
func (program) Other() program { return other }

// Page returns the comm, because metrics show it unchanged.
func (p program) Page() program { return p }

// Compare orders by comm.
func (p program) Compare(to program) int { return cmp.Compare(p, to) }

// sizes are the distributions of the direct launches of one comm.
type sizes struct {
	blocks  process.Powers // blocks of a grid
	threads process.Powers // threads of a block
}

// Add adds more.
func (s *sizes) Add(more *sizes) {
	s.blocks.Add(&more.blocks)
	s.threads.Add(&more.threads)
}

// Code passes over the distributions.
func (s *sizes) Code(c *snapshot.Codec) {
	s.blocks.Code(c)
	s.threads.Code(c)
}

// observe counts n launches of one shape.
func (s *sizes) observe(shape *schema.LaunchShape, n uint64) {
	blocks, threads := volume(shape.Grid), volume(shape.Block)
	s.blocks.ObserveAll(process.Power(blocks), n, n*blocks)
	s.threads.ObserveAll(process.Power(threads), n, n*threads)
}

func volume(d [3]uint32) uint64 { return uint64(d[0]) * uint64(d[1]) * uint64(d[2]) }

// Upper bounds of the classic buckets are 2 to the power of these.
var (
	blockPowers  = []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24}
	threadPowers = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
)

var (
	gridBlocks   = metric.Desc("gputap_cuda_kernel_grid_blocks")
	blockThreads = metric.Desc("gputap_cuda_kernel_block_threads")
)

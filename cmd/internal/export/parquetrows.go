package export

import (
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/schema"
)

// callRow is the columns of every file.
type callRow struct {
	Time    int64  `parquet:"time,timestamp(nanosecond),delta"`
	Cluster string `parquet:"cluster,dict"`
	Host    string `parquet:"host,dict"`
	PID     uint32 `parquet:"pid"`
	TID     uint32 `parquet:"tid"`
	Comm    string `parquet:"comm,dict"`
	User    string `parquet:"user,dict"`
	Job     string `parquet:"job,dict"`
	Symbol  string `parquet:"symbol,dict"`
	Op      string `parquet:"op,dict"`
	GPU     string `parquet:"gpu,dict"`
}

type memoryRow struct {
	callRow
	Class    string `parquet:"class,dict"`
	Result   uint32 `parquet:"result"`
	Duration uint64 `parquet:"duration_ns"`
	Bytes    uint64 `parquet:"bytes"`
	Address  uint64 `parquet:"address"`
	Aux      uint64 `parquet:"aux"`
	Pool     uint64 `parquet:"pool"`
}

type launchRow struct {
	callRow
	Kernel      string `parquet:"kernel,dict"`
	GridX       uint32 `parquet:"grid_x"`
	GridY       uint32 `parquet:"grid_y"`
	GridZ       uint32 `parquet:"grid_z"`
	BlockX      uint32 `parquet:"block_x"`
	BlockY      uint32 `parquet:"block_y"`
	BlockZ      uint32 `parquet:"block_z"`
	SharedBytes uint32 `parquet:"shared_bytes"`
	CUDAStream  uint64 `parquet:"cuda_stream"`
}

type copyRow struct {
	callRow
	Direction  string `parquet:"direction,dict"`
	Result     uint32 `parquet:"result"`
	Duration   uint64 `parquet:"duration_ns"`
	Bytes      uint64 `parquet:"bytes"`
	Dst        uint64 `parquet:"destination"`
	Src        uint64 `parquet:"source"`
	CUDAStream uint64 `parquet:"cuda_stream"`
	HostMem    string `parquet:"host_memory,dict"`
}

type syncRow struct {
	callRow
	Result     uint32 `parquet:"result"`
	Duration   uint64 `parquet:"duration_ns"`
	CUDAStream uint64 `parquet:"cuda_stream"`
	CUDAEvent  uint64 `parquet:"cuda_event"`
	Elapsed    uint64 `parquet:"elapsed_ns"`
}

type tensorRow struct {
	callRow
	Bytes     uint64 `parquet:"bytes"`
	Address   uint64 `parquet:"address"`
	Allocated uint64 `parquet:"allocated_bytes"`
	Reserved  uint64 `parquet:"reserved_bytes"`
}

func callRowOf(b *schema.Batch, i int) callRow {
	e := event.Of(b, i)
	p := &b.Processes[b.Threads[b.Thread().At(i)].Process]
	return callRow{e.Time.UnixNano(), e.Cluster, e.Host, e.PID, e.TID, e.Comm, p.User, p.Job, e.Symbol,
		opOf(b, i).String(), e.GPU}
}

func memoryRowOf(b *schema.Batch, i int) memoryRow {
	e := b.Memory(i)
	return memoryRow{callRowOf(b, i), b.Calls[e.Call].Class.String(), e.Result, e.Duration, e.Bytes, e.Ptr, e.Aux,
		e.Pool}
}

func launchRowOf(b *schema.Batch, i int) launchRow {
	e := b.Launch(i)
	s := &b.Shapes[e.Shape]
	return launchRow{callRowOf(b, i), event.Of(b, i).Kernel, s.Grid[0], s.Grid[1], s.Grid[2], s.Block[0], s.Block[1],
		s.Block[2], s.SharedBytes, b.CUDAStreams[e.CUDAStream]}
}

func copyRowOf(b *schema.Batch, i int) copyRow {
	e := b.Copy(i)
	return copyRow{callRowOf(b, i), b.Calls[e.Call].Direction.String(), e.Result, e.Duration, e.Bytes, e.Dst, e.Src,
		b.CUDAStreams[e.CUDAStream], e.HostMem.String()}
}

func syncRowOf(b *schema.Batch, i int) syncRow {
	e := b.Sync(i)
	return syncRow{callRowOf(b, i), e.Result, e.Duration, b.CUDAStreams[e.CUDAStream], e.CUDAEvent, e.Elapsed}
}

func tensorRowOf(b *schema.Batch, i int) tensorRow {
	e := b.Tensor(i)
	return tensorRow{callRowOf(b, i), e.Bytes, e.Ptr, e.Allocated, e.Reserved}
}

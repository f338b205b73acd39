package schema

// columnID names one attribute of an event.
type columnID uint8

const (
	colTime columnID = iota
	colDuration
	colThread
	colCall
	colGPU
	colResult
	colPtr
	colBytes
	colAux
	colDst
	colSrc
	colCUDAStream
	colShape
	colContext
	colPool
	colElapsed
	numColumns
)

var columnKeys = [numColumns]string{
	colTime: "t", colDuration: "d", colThread: "th", colCall: "c", colGPU: "g", colResult: "r", colPtr: "p",
	colBytes: "b", colAux: "x", colDst: "dst", colSrc: "src", colCUDAStream: "q", colShape: "s", colContext: "cx",
	colPool: "po", colElapsed: "v",
}

// kindColumns says which columns a kind's batches carry, in the order they are written.
var kindColumns = [NumKinds][]columnID{
	KindMemory: {colTime, colDuration, colThread, colCall, colGPU, colResult, colPtr, colBytes, colAux, colContext, colPool},
	KindLaunch: {colTime, colThread, colGPU, colShape, colCUDAStream},
	KindCopy:   {colTime, colDuration, colThread, colCall, colGPU, colResult, colBytes, colDst, colSrc, colCUDAStream},
	KindSync:   {colTime, colDuration, colThread, colCall, colGPU, colResult, colPtr, colAux, colCUDAStream, colElapsed},
}

// Batch is one decoded message: a header, the dictionaries that its events refer to, and the
// columns. Columns borrow the message's bytes; everything is overwritten by the next Decode into
// the same Batch. Every index in a column that names a dictionary entry has been checked.
type Batch struct {
	Header

	Processes   []Process
	Threads     []Thread
	GPUs        []GPU
	Calls       []CallRef
	Funcs       []Func
	Graphs      []Graph
	Contexts    []Context
	Shapes      []LaunchShape
	CUDAStreams []uint64
	// Older are the PIDs of processes that began before this run of the producer and are still there, as far as they
	// may have made calls; nil: nothing is said of them. Whoever began before, made no call in this run and is
	// not among them has ended.
	Older     []uint64
	Libraries []Library  // heartbeat only
	Coverage  []Coverage // heartbeat only
	Linux     string     // heartbeat only: release of the host's Linux
	Producer  string     // heartbeat only: version of the producer

	columns [numColumns]Column
	nodes   []Node // of all Graphs
}

// Time is the column of entry times.
func (b *Batch) Time() *Column { return &b.columns[colTime] }

// Duration is the column of ns between entry and return.
func (b *Batch) Duration() *Column { return &b.columns[colDuration] }

// Thread is the column of indices into Threads.
func (b *Batch) Thread() *Column { return &b.columns[colThread] }

// Call is the column of indices into Calls; launches find theirs in their shape.
func (b *Batch) Call() *Column { return &b.columns[colCall] }

// GPU is the column of 1 + index into GPUs; 0 is unknown.
func (b *Batch) GPU() *Column { return &b.columns[colGPU] }

// Result is the column of CUresults.
func (b *Batch) Result() *Column { return &b.columns[colResult] }

// Ptr is the column of addresses and handles of a memory or sync batch: see Memory.Ptr, Sync.CUDAEvent.
func (b *Batch) Ptr() *Column { return &b.columns[colPtr] }

// Bytes is the column of amounts.
func (b *Batch) Bytes() *Column { return &b.columns[colBytes] }

// Aux is the column of second handles of a memory or sync batch: see Memory.Aux, Sync.Until.
func (b *Batch) Aux() *Column { return &b.columns[colAux] }

// Shape is the column of indices into Shapes.
func (b *Batch) Shape() *Column { return &b.columns[colShape] }

// Context is the column of 1 + index into Contexts of a memory batch; 0 is unknown.
func (b *Batch) Context() *Column { return &b.columns[colContext] }

// CUDAStream is the column of indices into CUDAStreams.
func (b *Batch) CUDAStream() *Column { return &b.columns[colCUDAStream] }

// Memory is event i of a memory batch. It reads every column: a fold that needs few of them, or
// many events, expands columns instead.
func (b *Batch) Memory(i int) (m Memory) {
	b.ReadMemory(i, &m)
	return m
}

// ReadMemory is Memory for those who read so many events that the copy counts.
func (b *Batch) ReadMemory(i int, m *Memory) {
	c := &b.columns
	m.Time, m.Duration = KTime(c[colTime].At(i)), c[colDuration].At(i)
	m.Thread, m.Call = uint32(c[colThread].At(i)), uint32(c[colCall].At(i))
	m.GPU, m.Result = uint32(c[colGPU].At(i)), uint32(c[colResult].At(i))
	m.Ptr, m.Bytes, m.Aux = c[colPtr].At(i), c[colBytes].At(i), c[colAux].At(i)
	m.Context, m.Pool = uint32(c[colContext].At(i)), c[colPool].At(i)
}

// Launch is event i of a launch batch.
func (b *Batch) Launch(i int) Launch {
	c := &b.columns
	return Launch{
		Time: KTime(c[colTime].At(i)), Thread: uint32(c[colThread].At(i)), GPU: uint32(c[colGPU].At(i)),
		Shape: uint32(c[colShape].At(i)), CUDAStream: uint32(c[colCUDAStream].At(i)),
	}
}

// Copy is event i of a copy batch.
func (b *Batch) Copy(i int) Copy {
	c := &b.columns
	return Copy{
		Time: KTime(c[colTime].At(i)), Duration: c[colDuration].At(i), Thread: uint32(c[colThread].At(i)),
		Call: uint32(c[colCall].At(i)), GPU: uint32(c[colGPU].At(i)), Result: uint32(c[colResult].At(i)),
		Bytes: c[colBytes].At(i), Dst: c[colDst].At(i), Src: c[colSrc].At(i), CUDAStream: uint32(c[colCUDAStream].At(i)),
	}
}

// Sync is event i of a sync batch.
func (b *Batch) Sync(i int) Sync {
	c := &b.columns
	return Sync{
		Time: KTime(c[colTime].At(i)), Duration: c[colDuration].At(i), Thread: uint32(c[colThread].At(i)),
		Call: uint32(c[colCall].At(i)), GPU: uint32(c[colGPU].At(i)), Result: uint32(c[colResult].At(i)),
		CUDAStream: uint32(c[colCUDAStream].At(i)), CUDAEvent: c[colPtr].At(i), Until: c[colAux].At(i),
		Elapsed: c[colElapsed].At(i),
	}
}

// TotalLost is the sum of all causes.
func (h *Header) TotalLost() uint64 {
	var sum uint64
	for _, n := range h.Lost {
		sum += n
	}
	return sum
}

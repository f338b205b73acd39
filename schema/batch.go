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
	numColumns
)

var columnKeys = [numColumns]string{
	colTime: "t", colDuration: "d", colThread: "th", colCall: "c", colGPU: "g", colResult: "r", colPtr: "p",
	colBytes: "b", colAux: "x", colDst: "dst", colSrc: "src", colCUDAStream: "q", colShape: "s",
}

// kindColumns says which columns a kind's batches carry, in the order they are written.
var kindColumns = [NumKinds][]columnID{
	KindMemory: {colTime, colDuration, colThread, colCall, colGPU, colResult, colPtr, colBytes, colAux},
	KindLaunch: {colTime, colThread, colGPU, colShape, colCUDAStream},
	KindCopy:   {colTime, colDuration, colThread, colCall, colGPU, colResult, colBytes, colDst, colSrc, colCUDAStream},
	KindSync:   {colTime, colDuration, colThread, colCall, colGPU, colResult, colCUDAStream},
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
	Shapes      []LaunchShape
	CUDAStreams []uint64
	Libraries   []Library // heartbeat only
	Linux       string    // heartbeat only: release of the host's Linux
	Producer    string    // heartbeat only: version of the producer

	columns [numColumns]Column
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

// Ptr is the column of addresses and handles of a memory batch.
func (b *Batch) Ptr() *Column { return &b.columns[colPtr] }

// Bytes is the column of amounts.
func (b *Batch) Bytes() *Column { return &b.columns[colBytes] }

// Aux is the column of second handles of a memory batch: see Memory.Aux.
func (b *Batch) Aux() *Column { return &b.columns[colAux] }

// Shape is the column of indices into Shapes.
func (b *Batch) Shape() *Column { return &b.columns[colShape] }

// CUDAStream is the column of indices into CUDAStreams.
func (b *Batch) CUDAStream() *Column { return &b.columns[colCUDAStream] }

// Memory is event i of a memory batch. It reads every column: a fold that needs few of them, or
// many events, expands columns instead.
func (b *Batch) Memory(i int) Memory {
	c := &b.columns
	return Memory{
		Time: KTime(c[colTime].At(i)), Duration: c[colDuration].At(i), Thread: uint32(c[colThread].At(i)),
		Call: uint32(c[colCall].At(i)), GPU: uint32(c[colGPU].At(i)), Result: uint32(c[colResult].At(i)),
		Ptr: c[colPtr].At(i), Bytes: c[colBytes].At(i), Aux: c[colAux].At(i),
	}
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

// TotalLost is the sum of all causes.
func (h *Header) TotalLost() uint64 {
	var sum uint64
	for _, n := range h.Lost {
		sum += n
	}
	return sum
}

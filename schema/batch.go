package schema

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

// TotalLost is the sum of all causes.
func (h *Header) TotalLost() uint64 {
	var sum uint64
	for _, n := range h.Lost {
		sum += n
	}
	return sum
}

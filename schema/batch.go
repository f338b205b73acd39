package schema

// Batch is one decoded message: a header, the dictionaries that its events refer to, and the columns. Columns borrow
// the message's bytes. The next Decode into the same Batch overwrites everything. Decode has checked every index.
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
	// Older lists the PIDs of live processes that started before this run of the producer and may have made calls.
	// A process has ended if it started before this run, made no call in it, and is not listed. nil: this batch
	// has no list.
	Older     []uint64
	Libraries []Library  // heartbeat only
	Coverage  []Coverage // heartbeat only
	Linux     string     // heartbeat only: release of the host's Linux
	Producer  string     // heartbeat only: version of the producer

	columns [numColumns]Column
	nodes   []Node // of all Graphs
}

// Time returns the column of entry times.
func (b *Batch) Time() *Column { return &b.columns[colTime] }

// Duration returns the column of ns between entry and return.
func (b *Batch) Duration() *Column { return &b.columns[colDuration] }

// Thread returns the column of indices into Threads.
func (b *Batch) Thread() *Column { return &b.columns[colThread] }

// Call returns the column of indices into Calls. A launch finds its call in its shape.
func (b *Batch) Call() *Column { return &b.columns[colCall] }

// GPU returns the column of 1 + index into GPUs; 0 is unknown.
func (b *Batch) GPU() *Column { return &b.columns[colGPU] }

// Result returns the column of CUresults.
func (b *Batch) Result() *Column { return &b.columns[colResult] }

// Ptr returns the column of addresses and handles of a memory or sync batch: see Memory.Ptr, Sync.CUDAEvent.
func (b *Batch) Ptr() *Column { return &b.columns[colPtr] }

// Bytes returns the column of amounts.
func (b *Batch) Bytes() *Column { return &b.columns[colBytes] }

// Aux returns the column of second handles of a memory or sync batch: see Memory.Aux, Sync.Until.
func (b *Batch) Aux() *Column { return &b.columns[colAux] }

// Shape returns the column of indices into Shapes.
func (b *Batch) Shape() *Column { return &b.columns[colShape] }

// Context returns the column of 1 + index into Contexts of a memory batch; 0 is unknown.
func (b *Batch) Context() *Column { return &b.columns[colContext] }

// CUDAStream returns the column of indices into CUDAStreams.
func (b *Batch) CUDAStream() *Column { return &b.columns[colCUDAStream] }

// TotalLost returns the lost events of all causes.
func (h *Header) TotalLost() uint64 {
	var sum uint64
	for _, n := range h.Lost {
		sum += n
	}
	return sum
}

package schema

// ColumnSpec is one row of Columns.
type ColumnSpec struct {
	Key        string
	Kinds      []Kind
	Bits       uint8 // 32 or 64: Decode refuses a value that needs more
	Content    Content
	Dictionary Dictionary // that an index points into
	Optional   bool       // of an index: 0 is unknown, else 1 + the index
	Rare       bool       // a writer leaves the column out while every value is 0
	Unit       string
	Doc        string
}

// columnID numbers the rows of Columns. A batch writes its columns in this order.
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
	colShape
	colCUDAStream
	colContext
	colPool
	colElapsed
	colAllocated
	colReserved
	colHostMem
	colFrom
	colTo
	colCount
	colStack
	numColumns
)

var (
	everyEvent = []Kind{KindMemory, KindLaunch, KindCopy, KindSync, KindTensor, KindRank}
	observed   = []Kind{KindMemory, KindLaunch, KindCopy, KindSync, KindTensor}
	returning  = []Kind{KindMemory, KindCopy, KindSync} // a launch and a tensor have no return probe
	called     = []Kind{KindMemory, KindCopy, KindSync, KindTensor}
	onStream   = []Kind{KindLaunch, KindCopy, KindSync}
	addressed  = []Kind{KindMemory, KindSync}
	pointed    = []Kind{KindMemory, KindSync, KindTensor}
	memoryOnly = []Kind{KindMemory}
	launchOnly = []Kind{KindLaunch}
	copyOnly   = []Kind{KindCopy}
	syncOnly   = []Kind{KindSync}
	tensorOnly = []Kind{KindTensor}
	timed      = []Kind{KindMemory, KindCopy, KindSync, KindRank}
	rankOnly   = []Kind{KindRank}
)

// Columns is the one table of columns. The builder, the encoder, Decode's checks, docs/columns.md and
// examples/read_batch.py follow it. To add a column, add its row, its field in an event struct below, and the field's
// line in that event's Add and Read methods.
var Columns = [numColumns]ColumnSpec{
	colTime: {
		Key: "t", Kinds: everyEvent, Bits: 64, Content: ContentTime, Unit: "ns",
		Doc: "KTime at entry of the call; rank: start of the window",
	},
	colDuration: {
		Key: "d", Kinds: timed, Bits: 64, Unit: "ns", Doc: "from entry to return of the call; rank: sum in the window",
	},
	colThread: {
		Key: "th", Kinds: everyEvent, Bits: 32, Content: ContentIndex, Dictionary: DictThreads, Doc: "calling thread",
	},
	colCall: {
		Key: "c", Kinds: called, Bits: 32, Content: ContentIndex, Dictionary: DictCalls,
		Doc: "the call; a launch finds its call in its shape",
	},
	colGPU: {
		Key: "g", Kinds: observed, Bits: 32, Content: ContentIndex, Dictionary: DictGPUs, Optional: true,
		Doc: "GPU of the call",
	},
	colResult: {Key: "r", Kinds: returning, Bits: 32, Unit: "CUresult", Doc: "result of the call; 0 is success"},
	colPtr: {
		Key: "p", Kinds: pointed, Bits: 64, Content: ContentAddress,
		Doc: "memory: address or handle, as the op says; sync: CUDA event, or the context waited for; " +
			"tensor: address of the block",
	},
	colBytes: {
		Key: "b", Kinds: []Kind{KindMemory, KindCopy, KindTensor, KindRank}, Bits: 64, Unit: "bytes", Doc: "amount",
	},
	colAux: {
		Key: "x", Kinds: addressed, Bits: 64, Content: ContentAddress,
		Doc: "memory: as the op says, else the CUDA stream of a stream-ordered call; " +
			"sync: the later CUDA event of op `elapsed`",
	},
	colDst: {Key: "dst", Kinds: copyOnly, Bits: 64, Content: ContentAddress, Doc: "destination address"},
	colSrc: {Key: "src", Kinds: copyOnly, Bits: 64, Content: ContentAddress, Doc: "source address; 0 for a set"},
	colShape: {
		Key: "s", Kinds: launchOnly, Bits: 32, Content: ContentIndex, Dictionary: DictShapes, Doc: "launch shape",
	},
	colCUDAStream: {
		Key: "q", Kinds: onStream, Bits: 32, Content: ContentIndex, Dictionary: DictCUDAStreams, Doc: "CUDA stream",
	},
	colContext: {
		Key: "cx", Kinds: memoryOnly, Bits: 32, Content: ContentIndex, Dictionary: DictContexts, Optional: true,
		Doc: "current CUDA context of the thread",
	},
	colPool: {
		Key: "po", Kinds: memoryOnly, Bits: 64, Content: ContentAddress,
		Doc: "pool that an allocation names; 0: the default pool of the GPU, or no pool",
	},
	colElapsed: {
		Key: "v", Kinds: syncOnly, Bits: 64, Unit: "ns", Doc: "op `elapsed`: GPU time between the two CUDA events",
	},
	colAllocated: {
		Key: "al", Kinds: tensorOnly, Bits: 64, Unit: "bytes",
		Doc: "of all blocks of the process on the GPU, as PyTorch counts them after the call",
	},
	colReserved: {
		Key: "re", Kinds: tensorOnly, Bits: 64, Unit: "bytes",
		Doc: "of driver memory that PyTorch's allocator holds on the GPU",
	},
	colHostMem: {
		Key: "hm", Kinds: copyOnly, Bits: 32,
		Doc: "host memory of the copy: 0 unknown or none, 1 pageable, 2 pinned, registered or managed",
	},
	colFrom: {
		Key: "fr", Kinds: rankOnly, Bits: 32,
		Doc: "class of the calls before a pause; 0: the row is about the calls of class `to` themselves",
	},
	colTo: {
		Key: "to", Kinds: rankOnly, Bits: 32,
		Doc: "class of the calls, or of the calls after a pause: 1 launch, 2 copy HtoD, 3 copy DtoH, 4 other copy or " +
			"set, 5 sync, 6 memory; 0: no call came yet, and with `fr` 0 the process has ended",
	},
	colCount: {Key: "no", Kinds: rankOnly, Bits: 64, Doc: "number of calls or pauses"},
	colStack: {
		Key: "st", Kinds: memoryOnly, Bits: 32, Content: ContentIndex, Dictionary: DictStacks, Optional: true,
		Rare: true, Doc: "call stack of the call",
	},
}

// These are made from Columns, whose rows are too wide to search for every message.
var (
	columnKeys  = keysOfColumns()
	kindColumns = columnsOfKinds()
	rareColumns = rareOfColumns()
)

func keysOfColumns() (keys [numColumns]string) {
	for id := range Columns {
		keys[id] = Columns[id].Key
	}
	return keys
}

func rareOfColumns() (rare [numColumns]bool) {
	for id := range Columns {
		rare[id] = Columns[id].Rare
	}
	return rare
}

func columnsOfKinds() (columns [NumKinds][]columnID) {
	for id := range columnID(numColumns) {
		for _, kind := range Columns[id].Kinds {
			columns[kind] = append(columns[kind], id)
		}
	}
	return columns
}

// Memory is one event of a memory batch. Op says what Ptr, Bytes and Aux hold.
type Memory struct {
	Time     KTime  // at entry
	Duration uint64 // ns from entry to return
	Thread   uint32 // index into Batch.Threads
	Call     uint32 // index into Batch.Calls
	GPU      uint32 // 0: unknown, else 1 + index into Batch.GPUs
	Result   uint32 // CUresult
	Ptr      uint64 // device address, host address or handle
	Bytes    uint64
	Aux      uint64 // the CUDA stream of a stream-ordered call, unless Op says otherwise
	Context  uint32 // current context; 0: unknown, else 1 + index into Batch.Contexts
	Pool     uint64 // handle of the pool that an allocation names; 0: the default pool, or no pool
	Stack    uint32 // 0: unknown, else 1 + index into Batch.Stacks
}

// AddMemory adds an event to a memory batch.
func (b *Builder) AddMemory(e *Memory) {
	c, i := &b.columns, b.events
	c[colTime].add(uint64(e.Time), i)
	c[colDuration].add(e.Duration, i)
	c[colThread].add(uint64(e.Thread), i)
	c[colCall].add(uint64(e.Call), i)
	c[colGPU].add(uint64(e.GPU), i)
	c[colResult].add(uint64(e.Result), i)
	c[colPtr].add(e.Ptr, i)
	c[colBytes].add(e.Bytes, i)
	c[colAux].add(e.Aux, i)
	c[colContext].add(uint64(e.Context), i)
	c[colPool].add(e.Pool, i)
	c[colStack].addRare(uint64(e.Stack), i)
	b.events++
}

// ReadMemory reads event i of a memory batch into m. It reads every column: a fold that needs few of them, or reads
// many events, expands columns instead.
func (b *Batch) ReadMemory(i int, m *Memory) {
	c := &b.columns
	m.Time, m.Duration = KTime(c[colTime].At(i)), c[colDuration].At(i)
	m.Thread, m.Call = uint32(c[colThread].At(i)), uint32(c[colCall].At(i))
	m.GPU, m.Result = uint32(c[colGPU].At(i)), uint32(c[colResult].At(i))
	m.Ptr, m.Bytes, m.Aux = c[colPtr].At(i), c[colBytes].At(i), c[colAux].At(i)
	m.Context, m.Pool, m.Stack = uint32(c[colContext].At(i)), c[colPool].At(i), uint32(c[colStack].At(i))
}

// Memory returns event i of a memory batch; see ReadMemory.
func (b *Batch) Memory(i int) (m Memory) {
	b.ReadMemory(i, &m)
	return m
}

// Launch is one event of a launch batch.
type Launch struct {
	Time       KTime  // at entry
	Thread     uint32 // index into Batch.Threads
	GPU        uint32 // 0: unknown, else 1 + index into Batch.GPUs
	Shape      uint32 // index into Batch.Shapes
	CUDAStream uint32 // index into Batch.CUDAStreams
}

// AddLaunch adds an event to a launch batch.
func (b *Builder) AddLaunch(e *Launch) {
	c, i := &b.columns, b.events
	c[colTime].add(uint64(e.Time), i)
	c[colThread].add(uint64(e.Thread), i)
	c[colGPU].add(uint64(e.GPU), i)
	c[colShape].add(uint64(e.Shape), i)
	c[colCUDAStream].add(uint64(e.CUDAStream), i)
	b.events++
}

// Launch returns event i of a launch batch.
func (b *Batch) Launch(i int) Launch {
	c := &b.columns
	return Launch{
		Time: KTime(c[colTime].At(i)), Thread: uint32(c[colThread].At(i)), GPU: uint32(c[colGPU].At(i)),
		Shape: uint32(c[colShape].At(i)), CUDAStream: uint32(c[colCUDAStream].At(i)),
	}
}

// Copy is one event of a copy batch: a copy or a set, or the end of an asynchronous copy (OpCopied).
type Copy struct {
	Time       KTime  // at entry
	Duration   uint64 // ns in the call: the copy itself when it is synchronous, else its submission; see OpCopied
	Thread     uint32 // index into Batch.Threads
	Call       uint32 // index into Batch.Calls
	GPU        uint32 // 0: unknown, else 1 + index into Batch.GPUs
	Result     uint32 // CUresult
	Bytes      uint64
	Dst        uint64
	Src        uint64
	CUDAStream uint32 // index into Batch.CUDAStreams
	HostMem    HostMem
}

// AddCopy adds an event to a copy batch.
func (b *Builder) AddCopy(e *Copy) {
	c, i := &b.columns, b.events
	c[colTime].add(uint64(e.Time), i)
	c[colDuration].add(e.Duration, i)
	c[colThread].add(uint64(e.Thread), i)
	c[colCall].add(uint64(e.Call), i)
	c[colGPU].add(uint64(e.GPU), i)
	c[colResult].add(uint64(e.Result), i)
	c[colBytes].add(e.Bytes, i)
	c[colDst].add(e.Dst, i)
	c[colSrc].add(e.Src, i)
	c[colCUDAStream].add(uint64(e.CUDAStream), i)
	c[colHostMem].add(uint64(e.HostMem), i)
	b.events++
}

// Copy returns event i of a copy batch.
func (b *Batch) Copy(i int) Copy {
	c := &b.columns
	return Copy{
		Time: KTime(c[colTime].At(i)), Duration: c[colDuration].At(i), Thread: uint32(c[colThread].At(i)),
		Call: uint32(c[colCall].At(i)), GPU: uint32(c[colGPU].At(i)), Result: uint32(c[colResult].At(i)),
		Bytes: c[colBytes].At(i), Dst: c[colDst].At(i), Src: c[colSrc].At(i),
		CUDAStream: uint32(c[colCUDAStream].At(i)), HostMem: HostMem(c[colHostMem].At(i)),
	}
}

// Sync is one event of a sync batch.
type Sync struct {
	Time       KTime  // at entry
	Duration   uint64 // ns in the call: the wait, if the call waits; OpResume: since the last wait ended
	Thread     uint32 // index into Batch.Threads
	Call       uint32 // index into Batch.Calls
	GPU        uint32 // 0: unknown, else 1 + index into Batch.GPUs
	Result     uint32 // CUresult
	CUDAStream uint32 // index into Batch.CUDAStreams
	CUDAEvent  uint64 // or the context waited for
	Until      uint64 // OpElapsed: the later CUDA event
	Elapsed    uint64 // OpElapsed: ns of GPU time between the two CUDA events
}

// AddSync adds an event to a sync batch.
func (b *Builder) AddSync(e *Sync) {
	c, i := &b.columns, b.events
	c[colTime].add(uint64(e.Time), i)
	c[colDuration].add(e.Duration, i)
	c[colThread].add(uint64(e.Thread), i)
	c[colCall].add(uint64(e.Call), i)
	c[colGPU].add(uint64(e.GPU), i)
	c[colResult].add(uint64(e.Result), i)
	c[colPtr].add(e.CUDAEvent, i)
	c[colAux].add(e.Until, i)
	c[colCUDAStream].add(uint64(e.CUDAStream), i)
	c[colElapsed].add(e.Elapsed, i)
	b.events++
}

// Sync returns event i of a sync batch.
func (b *Batch) Sync(i int) Sync {
	c := &b.columns
	return Sync{
		Time: KTime(c[colTime].At(i)), Duration: c[colDuration].At(i), Thread: uint32(c[colThread].At(i)),
		Call: uint32(c[colCall].At(i)), GPU: uint32(c[colGPU].At(i)), Result: uint32(c[colResult].At(i)),
		CUDAStream: uint32(c[colCUDAStream].At(i)), CUDAEvent: c[colPtr].At(i), Until: c[colAux].At(i),
		Elapsed: c[colElapsed].At(i),
	}
}

// Tensor is one event of a tensor batch: PyTorch's caching allocator handed out a block, or took one back.
type Tensor struct {
	Time      KTime
	Thread    uint32 // index into Batch.Threads
	Call      uint32 // index into Batch.Calls: OpBlockAlloc or OpBlockFree
	GPU       uint32 // 0: unknown, else 1 + index into Batch.GPUs
	Ptr       uint64 // address of the block
	Bytes     uint64
	Allocated uint64 // bytes of all blocks of the process on the GPU after the call
	Reserved  uint64 // bytes of driver memory that the allocator holds on the GPU
}

// AddTensor adds an event to a tensor batch.
func (b *Builder) AddTensor(e *Tensor) {
	c, i := &b.columns, b.events
	c[colTime].add(uint64(e.Time), i)
	c[colThread].add(uint64(e.Thread), i)
	c[colCall].add(uint64(e.Call), i)
	c[colGPU].add(uint64(e.GPU), i)
	c[colPtr].add(e.Ptr, i)
	c[colBytes].add(e.Bytes, i)
	c[colAllocated].add(e.Allocated, i)
	c[colReserved].add(e.Reserved, i)
	b.events++
}

// Tensor returns event i of a tensor batch.
func (b *Batch) Tensor(i int) Tensor {
	c := &b.columns
	return Tensor{
		Time: KTime(c[colTime].At(i)), Thread: uint32(c[colThread].At(i)), Call: uint32(c[colCall].At(i)),
		GPU: uint32(c[colGPU].At(i)), Ptr: c[colPtr].At(i), Bytes: c[colBytes].At(i),
		Allocated: c[colAllocated].At(i), Reserved: c[colReserved].At(i),
	}
}

package schema

// Content is the meaning of a value on the wire. Programs that rewrite messages use it.
type Content uint8

// Contents.
const (
	ContentNumber  Content = iota // amount, code, duration, count or flag
	ContentTime                   // KTime
	ContentID                     // process or thread id of the host
	ContentAddress                // address or handle of one process
	ContentIndex                  // row of a dictionary
	ContentText                   // string
	ContentList                   // array
)

// Dictionary names one dictionary of a batch.
type Dictionary uint8

// Dictionaries in the order in which a batch writes them.
const (
	DictNone Dictionary = iota
	DictProcesses
	DictThreads
	DictGPUs
	DictCalls
	DictFuncs
	DictShapes
	DictGraphs
	DictContexts
	DictCUDAStreams
	DictLibraries
	DictCoverage
	DictEnds
	DictStacks
	numDictionaries
)

// DictionarySpec is one row of Dictionaries.
type DictionarySpec struct {
	Key    string
	Fields []FieldSpec // of a row; a dictionary of numbers has one field and no rows around it
	Bare   bool        // the entries are numbers
	Doc    string
}

// FieldSpec is one field of a dictionary's rows.
type FieldSpec struct {
	Name    string
	Content Content
	Doc     string
}

// Dictionaries is the one table of dictionaries: docs/columns.md and examples/read_batch.py follow it. Fields are only
// added at the end of a row.
var Dictionaries = [numDictionaries]DictionarySpec{
	DictProcesses: {Key: "procs", Doc: "processes", Fields: []FieldSpec{
		{"pid", ContentID, ""},
		{"start", ContentTime, "KTime"},
		{"uid", ContentNumber, ""},
		{"comm", ContentText, ""},
		{"exe", ContentText, ""},
		{"container", ContentText, "container id"},
		{"late", ContentNumber, "1: calls were made while no probe was attached"},
		{"user", ContentText, "name of the uid"},
		{"nspid", ContentNumber, "pid as the process sees it; 0: the same"},
		{"cgroup", ContentText, "path"},
		{"pod", ContentText, "UID of the Kubernetes pod"},
		{"unit", ContentText, "systemd unit"},
		{"job", ContentText, "job that the process belongs to"},
		{"rank", ContentNumber, "0: unknown, else 1 + rank within the job"},
		{"ranks", ContentNumber, "number of ranks of the job; 0: unknown"},
	}},
	DictThreads: {Key: "threads", Doc: "threads", Fields: []FieldSpec{
		{"process", ContentIndex, "index into `procs`"}, {"tid", ContentID, ""}, {"comm", ContentText, ""},
	}},
	DictGPUs: {Key: "gpus", Doc: "GPUs", Fields: []FieldSpec{
		{"uuid", ContentText, "as nvidia-smi prints it"},
		{"ordinal", ContentNumber, "in the numbering of the process; in `host` batches the device minor"},
		{"inferred", ContentNumber, "1: concluded from open files and environment"},
		{"model", ContentText, "`host` only"},
		{"bus", ContentText, "`host` only: PCI address"},
		{"bytes", ContentNumber, "memory of the GPU; 0: unknown"},
	}},
	DictCalls: {Key: "calls", Doc: "probed functions", Fields: []FieldSpec{
		{"symbol", ContentText, ""}, {"op", ContentText, ""}, {"class", ContentText, ""},
		{"direction", ContentText, ""},
	}},
	DictFuncs: {Key: "funcs", Doc: "CUDA kernels and executable graphs", Fields: []FieldSpec{
		{"name", ContentText, "mangled; empty for a graph, or when it is unknown"},
		{"handle", ContentAddress, ""},
		{"read", ContentNumber, "1: the name was read from the memory of the process"},
	}},
	DictShapes: {Key: "shapes", Doc: "launch shapes", Fields: []FieldSpec{
		{"call", ContentIndex, "index into `calls`"}, {"func", ContentIndex, "index into `funcs`"},
		{"grid_x", ContentNumber, ""}, {"grid_y", ContentNumber, ""}, {"grid_z", ContentNumber, ""},
		{"block_x", ContentNumber, ""}, {"block_y", ContentNumber, ""}, {"block_z", ContentNumber, ""},
		{"shared_bytes", ContentNumber, "dynamic shared memory"},
	}},
	DictGraphs: {Key: "graphs", Doc: "contents of executable graphs", Fields: []FieldSpec{
		{"func", ContentIndex, "index into `funcs`: the graph"},
		{"partial", ContentNumber, "1: the graph may run more kernels than listed"},
		{"nodes", ContentList, "index into `funcs`, count, index, count, …"},
	}},
	DictContexts: {Key: "ctxs", Doc: "CUDA contexts", Fields: []FieldSpec{
		{"handle", ContentAddress, ""}, {"gpu", ContentIndex, "0: unknown, else 1 + index into `gpus`"},
	}},
	DictCUDAStreams: {Key: "streams", Bare: true, Doc: "CUDA stream handles; 0: the default stream, or no stream",
		Fields: []FieldSpec{
			{"handle", ContentAddress, ""},
		}},
	DictLibraries: {Key: "libs", Doc: "`host` only: attached libraries, of the driver and of PyTorch", Fields: []FieldSpec{
		{"path", ContentText, ""}, {"inode", ContentNumber, ""}, {"attached", ContentNumber, "symbols with a probe"},
		{"stepped", ContentNumber, "slow probes among them: Linux single-steps their instruction"},
		{"absent", ContentList, "symbols that the library does not export"},
		{"failed", ContentList, "symbols whose probe failed"},
	}},
	DictCoverage: {Key: "cover", Doc: "`host` only: unseen calls of a process", Fields: []FieldSpec{
		{
			"process", ContentIndex, "index into `procs`",
		}, {"asked", ContentNumber, "driver functions that it asked for by name"},
		{"outside", ContentList, "those that work on memory or submit work and have no probe"},
		{"tables", ContentNumber, "tables of unnamed functions that it asked for"},
	}},
	DictEnds: {Key: "ends", Doc: "`host` only: how far each kind is complete", Fields: []FieldSpec{
		{"kind", ContentText, ""},
		{"seq", ContentNumber, "later batches of this kind and run contain no call that returned before `through`"},
		{"through", ContentTime, "KTime"},
	}},
	DictStacks: {Key: "stacks", Doc: "`memory` only: call stacks", Fields: []FieldSpec{
		{"frames", ContentList, "functions, innermost first; ` (module)` follows the function if it is known"},
		{"name", ContentText, "name of the variable that was allocated"},
	}},
}

// entries is the number of entries of a dictionary that columns point into.
func (b *Batch) entries(d Dictionary) int {
	return [numDictionaries]int{
		DictThreads: len(b.Threads), DictGPUs: len(b.GPUs), DictCalls: len(b.Calls), DictShapes: len(b.Shapes),
		DictContexts: len(b.Contexts), DictCUDAStreams: len(b.CUDAStreams),
		DictStacks: len(b.Stacks),
	}[d]
}

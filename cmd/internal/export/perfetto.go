package export

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var perfettoForm = form{
	name: "perfetto", short: "Timelines of memory, launches, copies and waits, for ui.perfetto.dev",
	long: `The output is the JSON trace event format, which chrome://tracing also opens. Allocations of at least --min-bytes are
slices from their call to their free. A launch is an instant: gputap sees its submission, not its run.
`,
	example: `  gputap export perfetto run.gputap -o trace.json
  gputap export perfetto run.gputap -o - --pid 4242 --min-bytes 16MiB | gzip > trace.json.gz`,
	flags: func(o *options, cmd *cobra.Command) {
		o.minBytes = 1 << 20
		cmd.Flags().Var(&o.minBytes, "min-bytes", "draw the lifetimes of allocations of at least this amount")
	},
	open: openTrace,
}

// trace is the timelines of all processes. Times are ns since 1970.
type trace struct {
	traceWriter
	tracks
	journal  *analysis.Journal
	minBytes uint64
	last     int64 // the latest event
	ids      uint64
	live     []map[uint32]*lifetime // by shard
}

func openTrace(o *options, s *source.Source) (sink, error) {
	first, err := firstEvent(o, s)
	if err != nil {
		return nil, err
	}
	out, err := o.files.create(o.out)
	if err != nil {
		return nil, err
	}
	t := &trace{journal: analysis.NewJournal(""), minBytes: uint64(o.minBytes), last: first}
	t.begin(out, first)
	t.tracks = newTracks(&t.traceWriter)
	return t, nil
}

// firstEvent returns the time of the earliest event of the range. It reads the recording once.
func firstEvent(o *options, s *source.Source) (first int64, err error) {
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	for m, err := range s.Messages(recording.Filter{Since: o.Since, Until: o.Until}) {
		if err != nil {
			return 0, err
		}
		if decoder.Decode(m.Data, b) != nil || b.Events == 0 || b.Kind >= schema.KindHost ||
			!o.OfHost(b.Cluster, b.Host) {
			continue
		}
		if at := b.Wall(b.First).UnixNano(); first == 0 || at < first {
			first = at
		}
	}
	return first, nil
}

// callArgs are the details of a call. Bytes are of memory and copies.
type callArgs struct {
	GPU       string   `json:"gpu,omitempty"`
	Bytes     uint64   `json:"bytes,omitempty"`
	Address   string   `json:"address,omitempty"`
	Class     string   `json:"class,omitempty"`
	Direction string   `json:"direction,omitempty"`
	Stream    string   `json:"stream,omitempty"`
	Symbol    string   `json:"symbol,omitempty"`
	Grid      []uint32 `json:"grid,omitempty"`
	Block     []uint32 `json:"block,omitempty"`
	Result    uint32   `json:"result,omitempty"`
	Took      micros   `json:"us,omitempty"` // of an instant with a duration
}

func (t *trace) event(b *schema.Batch, i int) error {
	c := traceCall{Event: event.Of(b, i), op: opOf(b, i), took: int64(b.Duration().At(i))}
	thread := &b.Threads[b.Thread().At(i)]
	p := &b.Processes[thread.Process]
	c.at, c.process = c.Time.UnixNano(), t.process(b.ID(p), p.Comm, p.Job)
	t.last = max(t.last, c.at+c.took)
	if b.Kind == schema.KindTensor {
		return t.torch(&c, b.Tensor(i))
	}
	c.args = callArgs{GPU: c.GPU, Bytes: c.Bytes, Address: c.Address, Class: c.Class, Direction: c.Direction,
		Grid: c.Grid, Block: c.Block, Result: c.Result}
	c.thread = t.thread(c.process, thread.TID, thread.Comm)
	if handle, on := streamOf(b, i); on {
		c.stream = t.stream(c.process, c.GPU, handle)
		c.args.Stream = fmt.Sprintf("%#x", handle)
	}
	return t.call(&c)
}

// traceCall is a call with its tracks.
type traceCall struct {
	event.Event
	op      schema.Op
	at      int64
	took    int64 // ns
	process *processTrack
	thread  uint32
	stream  *streamTrack // nil: none
	args    callArgs
}

func (t *trace) call(c *traceCall) error {
	e := traceEvent{Phase: "X", Name: c.Symbol, Category: c.Kind, PID: c.process.pid, TID: c.thread, At: t.since(c.at),
		Args: &c.args}
	switch c.op {
	case schema.OpResume: // the time between two calls
		return nil
	case schema.OpExec, schema.OpExit:
		e.Phase, e.Scope = "i", "p"
		return t.write(&e)
	case schema.OpCopied, schema.OpCopiedBehind:
		return t.onStream(c, e)
	case schema.OpLaunch, schema.OpGraphLaunch:
		e.Phase, e.Scope, c.args.Symbol = "i", "t", c.Symbol
		if c.op == schema.OpLaunch {
			e.Name = c.Kernel
		}
	default:
		if c.Kind == schema.KindLaunch.String() {
			e.Phase, e.Scope = "i", "t"
		} else {
			e.Took = new(micros(c.took))
		}
	}
	if err := t.write(&e); err != nil {
		return err
	}
	switch c.op {
	case schema.OpLaunch, schema.OpGraphLaunch, schema.OpCopy, schema.OpCopyAsync, schema.OpSet, schema.OpSetAsync:
		return t.onStream(c, e)
	}
	return nil
}

// onStream writes a call on the track of its CUDA stream. Slices of a track must not overlap: there, a call that
// begins before the one before has ended is an instant.
func (t *trace) onStream(c *traceCall, e traceEvent) error {
	if c.stream == nil {
		return nil
	}
	e.TID, e.Phase, e.Scope, e.Took = c.stream.tid, "i", "t", nil
	submits := c.op == schema.OpCopyAsync || c.op == schema.OpSetAsync
	switch {
	case c.took == 0 || submits:
	case c.at >= c.stream.end:
		e.Phase, e.Scope, e.Took = "X", "", new(micros(c.took))
		c.stream.end = c.at + c.took
	default:
		c.args.Took = micros(c.took)
	}
	return t.write(&e)
}

// torchArgs are the two series of a counter.
type torchArgs struct {
	Allocated uint64 `json:"allocated"`
	Reserved  uint64 `json:"reserved"`
}

func (t *trace) torch(c *traceCall, block schema.Tensor) error {
	return t.write(&traceEvent{Phase: "C", Name: "PyTorch memory on " + gpuName(c.GPU, -1), PID: c.process.pid,
		At: t.since(c.at), Args: torchArgs{block.Allocated, block.Reserved}})
}

func (t *trace) receiver() func(*leak.Movement) { return t.lifetimes(t.journal.Receiver()) }

// Close removes the temporary file.
func (t *trace) Close() error {
	t.journal.Close()
	return nil
}

func (t *trace) finish() error {
	if err := t.endLifetimes(); err != nil {
		return err
	}
	processes, err := t.journal.Processes()
	if err != nil {
		return err
	}
	for _, p := range processes {
		if err := t.counters(p); err != nil {
			return err
		}
	}
	return t.end()
}

// opOf returns the op of event i of a batch.
func opOf(b *schema.Batch, i int) schema.Op {
	call := b.Call().At(i)
	if b.Kind == schema.KindLaunch {
		call = uint64(b.Shapes[b.Shape().At(i)].Call)
	}
	return b.Calls[call].Op
}

// streamOf returns the CUDA stream of event i of a batch. Syncs stay on their thread: some wait for no CUDA stream.
func streamOf(b *schema.Batch, i int) (handle uint64, on bool) {
	switch b.Kind {
	case schema.KindLaunch:
		return b.CUDAStreams[b.Launch(i).CUDAStream], true
	case schema.KindCopy:
		return b.CUDAStreams[b.Copy(i).CUDAStream], true
	}
	return 0, false
}

// gpuName names a GPU for people.
func gpuName(uuid string, ordinal int32) string {
	switch {
	case uuid != "":
		return uuid
	case ordinal >= 0:
		return fmt.Sprint("device ", ordinal)
	}
	return "an unknown GPU"
}

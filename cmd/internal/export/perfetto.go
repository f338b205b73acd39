package export

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/backtest"
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var perfettoForm = form{
	name: "perfetto", short: "Timelines of memory, launches, copies, waits and alerts, for ui.perfetto.dev",
	long: `Allocations of at least --min-bytes are slices from their call to their free. A launch is an instant: gputap sees its
submission, not its run. Alerts are those that gputap anomaly backtest computes with the current configuration.
`,
	example: `  gputap export perfetto run.gputap -o trace.pftrace
  gputap export perfetto run.gputap -o - --pid 4242 --min-bytes 16MiB | gzip > trace.pftrace.gz`,
	flags: func(o *options, cmd *cobra.Command) {
		o.minBytes = 1 << 20
		cmd.Flags().Var(&o.minBytes, "min-bytes", "draw the lifetimes of allocations of at least this amount")
		cmd.Flags().BoolVar(&o.alerts, "alerts", true, "run the alert rules, and mark the alerts")
	},
	open: openTrace,
}

// trace is the timelines of all processes. Times are ns since 1970.
type trace struct {
	traceWriter
	tracks
	events   event.Reader
	journal  *analysis.Journal
	minBytes uint64
	last     int64                  // the latest event
	live     []map[uint32]*lifetime // by shard
	offsets  map[machine]int64      // wall clock minus KTime, ns

	incidents []*backtest.Incident
}

// machine is a host from one boot to the next.
type machine struct{ cluster, host, boot string }

// clockStep is the least change of a wall clock that counts as set, and not as measured differently.
const clockStep = int64(time.Millisecond)

// wall returns the time of an event in ns since 1970. Producers measure the offset of the wall clock again and again,
// some ns differently. Only the first offset is used until the clock is set. Slices of a thread would overlap
// otherwise, and Perfetto would end the wrong one.
func (t *trace) wall(b *schema.Batch, at schema.KTime) int64 {
	m := machine{b.Cluster, b.Host, b.BootID}
	offset, known := t.offsets[m]
	if change := b.ClockOffset - offset; !known || change >= clockStep || change <= -clockStep {
		offset = b.ClockOffset
		t.offsets[m] = offset
	}
	return int64(at) + offset
}

func openTrace(ctx context.Context, o *options, s *source.Source) (sink, error) {
	first, err := firstEvent(o, s)
	if err != nil {
		return nil, err
	}
	incidents, err := alertsOf(ctx, o, s)
	if err != nil {
		return nil, err
	}
	out, err := o.files.create(o.out)
	if err != nil {
		return nil, err
	}
	t := &trace{journal: analysis.NewJournal(""), minBytes: uint64(o.minBytes), last: first, incidents: incidents,
		offsets: map[machine]int64{}}
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

func (t *trace) event(b *schema.Batch, i int) error {
	c := traceCall{Event: t.events.Of(b, i), op: opOf(b, i), took: int64(b.Duration().At(i))}
	thread := &b.Threads[b.Thread().At(i)]
	p := &b.Processes[thread.Process]
	c.at, c.process = t.wall(b, schema.KTime(b.Time().At(i))), t.process(b.ID(p), p.Comm, p.Job)
	t.last = max(t.last, c.at+c.took)
	if b.Kind == schema.KindTensor {
		return t.torch(&c, b.Tensor(i))
	}
	c.thread = t.thread(c.process, thread.TID, thread.Comm)
	if handle, on := streamOf(b, i); on {
		c.stream, c.handle = t.stream(c.process, c.GPU, handle), fmt.Sprintf("%#x", handle)
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
	thread  uint64
	stream  *streamTrack // nil: none
	handle  string       // of the CUDA stream
}

// args returns the details of a call. Bytes are of memory and copies.
func (c *traceCall) args() (a args) {
	a.text("gpu", c.GPU)
	a.number("bytes", c.Bytes)
	a.text("address", c.Address)
	a.text("class", c.Class)
	a.text("direction", c.Direction)
	a.text("stream", c.handle)
	a.text("grid", triple(c.Grid))
	a.text("block", triple(c.Block))
	a.number("result", uint64(c.Result))
	return a
}

func (t *trace) call(c *traceCall) error {
	e := traceEvent{track: c.thread, at: c.at, name: c.Symbol, category: c.Kind, args: c.args()}
	var err error
	switch c.op {
	case schema.OpResume: // the time between two calls
		return nil
	case schema.OpExec, schema.OpExit:
		e.track = c.process.id
		return t.instant(&e)
	case schema.OpCopied, schema.OpCopiedBehind:
		return t.onStream(c, &e)
	case schema.OpLaunch:
		e.name = c.Kernel
		e.args.text("symbol", c.Symbol)
		err = t.instant(&e)
	default:
		if c.Kind == schema.KindLaunch.String() {
			err = t.instant(&e)
		} else {
			err = t.slice(&e, c.took, nil)
		}
	}
	switch c.op {
	case schema.OpLaunch, schema.OpGraphLaunch, schema.OpCopy, schema.OpCopyAsync, schema.OpSet, schema.OpSetAsync:
		return cmp.Or(err, t.onStream(c, &e))
	}
	return err
}

// onStream writes a call on the track of its CUDA stream. Slices of a track must not overlap: there, a call that
// begins before the one before has ended is an instant.
func (t *trace) onStream(c *traceCall, e *traceEvent) error {
	if c.stream == nil {
		return nil
	}
	e.track = c.stream.id
	submits := c.op == schema.OpCopyAsync || c.op == schema.OpSetAsync
	switch {
	case c.took == 0 || submits:
	case c.at >= c.stream.end:
		c.stream.end = c.at + c.took
		return t.slice(e, c.took, nil)
	default:
		e.args.number("ns", uint64(c.took))
	}
	return t.instant(e)
}

func (t *trace) torch(c *traceCall, block schema.Tensor) error {
	gpu := gpuName(c.GPU, -1)
	return cmp.Or(
		t.counter(t.bytesOf(c.process, "PyTorch allocated on "+gpu), c.at, block.Allocated),
		t.counter(t.bytesOf(c.process, "PyTorch reserved on "+gpu), c.at, block.Reserved),
	)
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
		if err := t.usage(p); err != nil {
			return err
		}
	}
	return cmp.Or(t.writeAlerts(), t.err)
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

package export

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema"
)

var parquetForm = form{
	name: "parquet", short: "Every event as a row of Parquet, for DuckDB or pandas",
	long: "With --kind, one file; without it, a file for each kind in the directory OUT. docs/export.md explains the " +
		"columns.\n",
	example: `  gputap export parquet run.gputap -o events/
  gputap export parquet run.gputap -o launches.parquet --kind launch`,
	flags: func(o *options, cmd *cobra.Command) {
		addKind(o, cmd)
		cmd.Flags().Lookup("output").Usage = "directory to write, or the file if --kind is given; -: standard output"
	},
	open: func(_ context.Context, o *options, _ *source.Source) (sink, error) {
		p := &parquetFiles{o: o}
		if kind, known := event.ParseKind(o.kind); known {
			return p, p.create(kind, o.out)
		}
		return p, o.directory("parquet")
	},
}

// parquetFiles are the files of all kinds.
type parquetFiles struct {
	o      *options
	byKind [schema.NumKinds]parquetFile
	events event.Reader
}

// parquetFile is the file of one kind.
type parquetFile interface {
	add(e *event.Event, b *schema.Batch, i int) error
	close() error
}

func (p *parquetFiles) create(kind schema.Kind, path string) error {
	out, err := p.o.files.create(path)
	if err != nil {
		return err
	}
	switch kind {
	case schema.KindMemory:
		p.byKind[kind] = newRows(out, memoryRowOf)
	case schema.KindLaunch:
		p.byKind[kind] = newRows(out, launchRowOf)
	case schema.KindCopy:
		p.byKind[kind] = newRows(out, copyRowOf)
	case schema.KindSync:
		p.byKind[kind] = newRows(out, syncRowOf)
	case schema.KindTensor:
		p.byKind[kind] = newRows(out, tensorRowOf)
	}
	return nil
}

func (p *parquetFiles) event(b *schema.Batch, i int) error {
	if p.byKind[b.Kind] == nil {
		if err := p.create(b.Kind, filepath.Join(p.o.out, b.Kind.String()+".parquet")); err != nil {
			return err
		}
	}
	e := p.events.Of(b, i)
	return p.byKind[b.Kind].add(&e, b, i)
}

func (p *parquetFiles) finish() (err error) {
	for _, one := range p.byKind {
		if one != nil {
			err = errors.Join(err, one.close())
		}
	}
	return err
}

// Rows are written in groups: a group is in memory until it is complete, about 20 MiB.
const (
	rowsOfGroup = 1 << 17
	rowsAtOnce  = 1 << 10
)

// rows writes the file of one kind.
type rows[T any] struct {
	to  *parquet.GenericWriter[T]
	of  func(e *event.Event, b *schema.Batch, i int) T
	buf []T
}

func newRows[T any](out io.Writer, of func(e *event.Event, b *schema.Batch, i int) T) *rows[T] {
	return &rows[T]{of: of, to: parquet.NewGenericWriter[T](out, parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsOfGroup), parquet.CreatedBy("gputap", "", ""))}
}

func (r *rows[T]) add(e *event.Event, b *schema.Batch, i int) error {
	if r.buf = append(r.buf, r.of(e, b, i)); len(r.buf) < rowsAtOnce {
		return nil
	}
	return r.flush()
}

func (r *rows[T]) flush() error {
	_, err := r.to.Write(r.buf)
	r.buf = r.buf[:0]
	return err
}

func (r *rows[T]) close() error {
	return errors.Join(r.flush(), r.to.Close())
}

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

func callRowOf(e *event.Event, b *schema.Batch, i int) callRow {
	p := &b.Processes[b.Threads[b.Thread().At(i)].Process]
	return callRow{e.Time.UnixNano(), e.Cluster, e.Host, e.PID, e.TID, e.Comm, p.User, p.Job, e.Symbol,
		opOf(b, i).String(), e.GPU}
}

func memoryRowOf(e *event.Event, b *schema.Batch, i int) memoryRow {
	c := b.Memory(i)
	return memoryRow{callRowOf(e, b, i), e.Class, c.Result, c.Duration, c.Bytes, c.Ptr, c.Aux, c.Pool}
}

func launchRowOf(e *event.Event, b *schema.Batch, i int) launchRow {
	c := b.Launch(i)
	s := &b.Shapes[c.Shape]
	return launchRow{callRowOf(e, b, i), e.Kernel, s.Grid[0], s.Grid[1], s.Grid[2], s.Block[0], s.Block[1],
		s.Block[2], s.SharedBytes, b.CUDAStreams[c.CUDAStream]}
}

func copyRowOf(e *event.Event, b *schema.Batch, i int) copyRow {
	c := b.Copy(i)
	return copyRow{callRowOf(e, b, i), b.Calls[c.Call].Direction.String(), c.Result, c.Duration, c.Bytes, c.Dst, c.Src,
		b.CUDAStreams[c.CUDAStream], c.HostMem.String()}
}

func syncRowOf(e *event.Event, b *schema.Batch, i int) syncRow {
	c := b.Sync(i)
	return syncRow{callRowOf(e, b, i), c.Result, c.Duration, b.CUDAStreams[c.CUDAStream], c.CUDAEvent, c.Elapsed}
}

func tensorRowOf(e *event.Event, b *schema.Batch, i int) tensorRow {
	c := b.Tensor(i)
	return tensorRow{callRowOf(e, b, i), c.Bytes, c.Ptr, c.Allocated, c.Reserved}
}

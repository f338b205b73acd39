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
}

// parquetFile is the file of one kind.
type parquetFile interface {
	add(b *schema.Batch, i int) error
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
	return p.byKind[b.Kind].add(b, i)
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
	of  func(b *schema.Batch, i int) T
	buf []T
}

func newRows[T any](out io.Writer, of func(b *schema.Batch, i int) T) *rows[T] {
	return &rows[T]{of: of, to: parquet.NewGenericWriter[T](out, parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsOfGroup), parquet.CreatedBy("gputap", "", ""))}
}

func (r *rows[T]) add(b *schema.Batch, i int) error {
	if r.buf = append(r.buf, r.of(b, i)); len(r.buf) < rowsAtOnce {
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

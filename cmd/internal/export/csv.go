package export

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema"
)

var csvForm = form{
	name: "csv", short: "Every event as one row of CSV",
	long: "With --kind, one file; without it, a file for each kind in the directory OUT. The first row has the names " +
		"of the\ncolumns, which are the keys of gputap tail -o json.\n",
	example: `  gputap export csv run.gputap -o events/
  gputap export csv run.gputap -o - --kind copy --host gpu-1`,
	flags: func(o *options, cmd *cobra.Command) {
		addKind(o, cmd)
		cmd.Flags().Lookup("output").Usage = "directory to write, or the file if --kind is given; -: standard output"
	},
	open: openTables,
}

// csvColumn is one column of the files of some kinds; none: of all.
type csvColumn struct {
	name  string
	kinds []schema.Kind
	text  func(*event.Event) string
}

var csvColumns = []csvColumn{
	{"time", nil, func(e *event.Event) string { return e.Time.String() }},
	{"cluster", nil, func(e *event.Event) string { return e.Cluster }},
	{"host", nil, func(e *event.Event) string { return e.Host }},
	{"pid", nil, func(e *event.Event) string { return number(uint64(e.PID)) }},
	{"tid", nil, func(e *event.Event) string { return number(uint64(e.TID)) }},
	{"comm", nil, func(e *event.Event) string { return e.Comm }},
	{"op", nil, func(e *event.Event) string { return e.Op }},
	{"symbol", nil, func(e *event.Event) string { return e.Symbol }},
	{"class", []schema.Kind{schema.KindMemory}, func(e *event.Event) string { return e.Class }},
	{"direction", []schema.Kind{schema.KindCopy}, func(e *event.Event) string { return e.Direction }},
	{"gpu", nil, func(e *event.Event) string { return e.GPU }},
	{"result", []schema.Kind{schema.KindMemory, schema.KindCopy, schema.KindSync},
		func(e *event.Event) string { return number(uint64(e.Result)) }},
	{"bytes", []schema.Kind{schema.KindMemory, schema.KindCopy, schema.KindTensor},
		func(e *event.Event) string { return number(e.Bytes) }},
	{"address", []schema.Kind{schema.KindMemory, schema.KindSync, schema.KindTensor},
		func(e *event.Event) string { return e.Address }},
	{"seconds", []schema.Kind{schema.KindMemory, schema.KindCopy, schema.KindSync},
		func(e *event.Event) string { return strconv.FormatFloat(e.Seconds, 'f', -1, 64) }},
	{"kernel", []schema.Kind{schema.KindLaunch}, func(e *event.Event) string { return e.Kernel }},
	{"grid", []schema.Kind{schema.KindLaunch}, func(e *event.Event) string { return triple(e.Grid) }},
	{"block", []schema.Kind{schema.KindLaunch}, func(e *event.Event) string { return triple(e.Block) }},
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// triple formats dimensions as X×Y×Z.
func triple(d []uint32) string {
	var text []byte
	for i, n := range d {
		if i > 0 {
			text = append(text, "×"...)
		}
		text = strconv.AppendUint(text, uint64(n), 10)
	}
	return string(text)
}

// tables are the files of all kinds.
type tables struct {
	o      *options
	byKind [schema.NumKinds]*table
	events event.Reader
	row    []string
}

type table struct {
	*csv.Writer
	columns []csvColumn
}

func openTables(_ context.Context, o *options, _ *source.Source) (sink, error) {
	t := &tables{o: o}
	if kind, known := event.ParseKind(o.kind); known {
		return t, t.create(kind, o.out)
	}
	return t, o.directory("csv")
}

// directory creates the directory of a form that writes a file for each kind.
func (o *options) directory(form string) error {
	if o.out == "-" {
		return app.Usage(fmt.Errorf("-o -: %s writes a file for each kind; name a directory, or one kind with --kind",
			form))
	}
	if info, err := os.Stat(o.out); err == nil && !info.IsDir() {
		return app.Usage(fmt.Errorf("--output %s: %s writes a file for each kind, and this is a file; name a "+
			"directory, or one kind with --kind", o.out, form))
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("--output %s: create the directory: %w", o.out, err)
	}
	return nil
}

func (t *tables) create(kind schema.Kind, path string) error {
	out, err := t.o.files.create(path)
	if err != nil {
		return err
	}
	to := &table{Writer: csv.NewWriter(out)}
	var names []string
	for _, c := range csvColumns {
		if c.kinds == nil || slices.Contains(c.kinds, kind) {
			to.columns, names = append(to.columns, c), append(names, c.name)
		}
	}
	t.byKind[kind] = to
	return to.Write(names)
}

func (t *tables) event(b *schema.Batch, i int) error {
	if t.byKind[b.Kind] == nil {
		if err := t.create(b.Kind, filepath.Join(t.o.out, b.Kind.String()+".csv")); err != nil {
			return err
		}
	}
	to, e := t.byKind[b.Kind], t.events.Of(b, i)
	t.row = t.row[:0]
	for _, c := range to.columns {
		t.row = append(t.row, c.text(&e))
	}
	return to.Write(t.row)
}

func (t *tables) finish() (err error) {
	for _, to := range t.byKind {
		if to != nil {
			to.Flush()
			err = errors.Join(err, to.Error())
		}
	}
	return err
}

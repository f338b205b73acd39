package nsys

import (
	"context"
	"database/sql"

	"github.com/gputap/gputap/schema"
)

// source is a table that has events.
type source struct {
	kind   schema.Kind
	table  string
	needed bool   // if its kind is asked for
	effect string // of its absence
	remedy string
	calls  []string // patterns of the names of calls from which its rows come
	open   func(ctx context.Context, c *converter) (*feed, error)
}

const (
	memoryTable  = "CUDA_GPU_MEMORY_USAGE_EVENTS"
	callTable    = "CUPTI_ACTIVITY_KIND_RUNTIME"
	kernelTable  = "CUPTI_ACTIVITY_KIND_KERNEL"
	copyTable    = "CUPTI_ACTIVITY_KIND_MEMCPY"
	setTable     = "CUPTI_ACTIVITY_KIND_MEMSET"
	remedyTrace  = "profile with nsys profile -t cuda --cuda-memory-usage=true"
	remedyLaunch = "profile with nsys profile -t cuda, and a program that launches kernels"
	remedyCopy   = "profile with nsys profile -t cuda, and a program that copies"
)

// sources in the order in which rows of equal times are taken.
var sources = []source{
	{schema.KindMemory, memoryTable, true, "no memory events", remedyTrace, nil, openMemory},
	{schema.KindLaunch, kernelTable, true, "no kernel launches", remedyLaunch, []string{
		"cudaLaunchKernel*", "cudaLaunchCooperativeKernel*", "cudaLaunch_v*", "cudaGraphLaunch*", "cuLaunchKernel*",
		"cuLaunchCooperativeKernel*", "cuLaunchGrid*", "cuGraphLaunch*",
	}, openKernels},
	{schema.KindCopy, copyTable, true, "no copies", remedyCopy, []string{"cudaMemcpy*", "cuMemcpy*"}, openCopies},
	{schema.KindCopy, setTable, false, "no memory sets", "", []string{"cudaMemset*", "cuMemset*"}, openSets},
}

// feed is the rows of one table in the order of their times.
type feed struct {
	table string
	rows  *sql.Rows
	row   []any // the values of the row at hand
	into  []any // pointers to them
	at    schema.KTime
	ended bool

	size       int   // column of the bytes; 0: none
	impossible bool  // the row at hand has an impossible size
	last       int64 // rowid of the row before, if once

	// once says that the last column is the rowid, and that a row may come several times: the first counts.
	once   bool
	usable func(row []any) bool
	add    func(row []any) (schema.Kind, error) // adds the row at hand to its batch
}

// newFeed starts a query whose first column is the time.
func newFeed(ctx context.Context, d *database, query string) (*feed, error) {
	rows, err := d.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	columns, err := rows.Columns()
	if err != nil {
		_ = rows.Close()
		return nil, err
	}
	f := &feed{rows: rows, row: make([]any, len(columns)), into: make([]any, len(columns)), last: -1 << 63}
	for i := range f.row {
		f.into[i] = &f.row[i]
	}
	return f, nil
}

// next reads a row, and reports whether it is usable.
func (f *feed) next() (usable bool, err error) {
	f.impossible = false
	for f.rows.Next() {
		if err := f.rows.Scan(f.into...); err != nil {
			return false, err
		}
		if f.once {
			id, _ := f.row[len(f.row)-1].(int64)
			if id == f.last {
				continue
			}
			f.last = id
		}
		at, ok := number(f.row[0])
		if !ok || at > latest || !f.usable(f.row) {
			return false, nil
		}
		if f.impossible = f.size > 0 && bits(f.row[f.size]) >= maxBytes; f.impossible {
			return false, nil
		}
		f.at = schema.KTime(at)
		return true, nil
	}
	f.ended = true
	return false, f.rows.Err()
}

func (f *feed) close() { _ = f.rows.Close() }

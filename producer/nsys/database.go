package nsys

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gputap/gputap/schema/recording"
)

const (
	remedyExport = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
	remedyOther  = "convert a report with nsys export --type sqlite REPORT.nsys-rep"
)

// database is an open export.
type database struct {
	path    string
	bytes   int64
	db      *sql.DB
	tables  map[string]map[string]bool // columns by table, all in lower case
	views   map[string]bool            // in lower case
	missing []Missing
}

// open opens an export, and refuses what cannot be one.
func open(ctx context.Context, path string) (*database, error) {
	d := &database{path: path, tables: map[string]map[string]bool{}, views: map[string]bool{}}
	if err := d.check(); err != nil {
		return nil, d.explain(err)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, d.explain(err)
	}
	name := url.URL{Scheme: "file", Path: full, RawQuery: "mode=ro&immutable=1"}
	if d.db, err = sql.Open("sqlite", name.String()); err != nil {
		return nil, d.explain(err)
	}
	if err := d.readTables(ctx); err != nil {
		d.close()
		return nil, d.explain(err)
	}
	return d, nil
}

func (d *database) close() { _ = d.db.Close() }

// explain adds the name of the file to an error, and what to do.
func (d *database) explain(err error) error {
	var path *os.PathError
	switch {
	case errors.As(err, &path):
		return fmt.Errorf("read the Nsight Systems export %s: %w", d.path, path.Err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("read the Nsight Systems export %s: %w", d.path, err)
	case strings.Contains(err.Error(), "malformed") || strings.Contains(err.Error(), "not a database") ||
		strings.Contains(err.Error(), "disk I/O error"):
		return fmt.Errorf("read the Nsight Systems export %s: the database is damaged: %w; %s", d.path, err,
			remedyExport)
	}
	return fmt.Errorf("read the Nsight Systems export %s: %w", d.path, err)
}

// header is the beginning of an SQLite database.
const header = 100

// check refuses files that are no complete SQLite database.
func (d *database) check() error {
	f, err := recording.OpenFile(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	d.bytes = info.Size()
	if d.bytes == 0 {
		return errors.New("the file is empty; " + remedyExport)
	}
	begin := make([]byte, header)
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(begin[:min(n, len(magic))]) != magic {
		return errors.New("it is not an SQLite database; " + remedyOther)
	}
	if n < header {
		return errors.New("the file ends in its header; " + remedyExport)
	}
	if want := bytesOf(begin); d.bytes < want {
		return fmt.Errorf("the file ends after %d of %d bytes; %s", d.bytes, want, remedyExport)
	}
	return d.checkWriter()
}

// bytesOf returns the length that the header of a database names, or 0 if the header does not tell.
func bytesOf(header []byte) int64 {
	page := int64(binary.BigEndian.Uint16(header[16:]))
	if page == 1 {
		page = 1 << 16
	}
	if binary.BigEndian.Uint32(header[24:]) != binary.BigEndian.Uint32(header[92:]) {
		return 0 // an old SQLite wrote the file last
	}
	return page * int64(binary.BigEndian.Uint32(header[28:]))
}

// checkWriter refuses a database that has changes beside it: its program still writes, or was interrupted.
func (d *database) checkWriter() error {
	for _, suffix := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(d.path + suffix); err == nil && info.Size() > 0 {
			return fmt.Errorf("the file is not complete: %s has changes of a program that writes it or was "+
				"interrupted; wait for that program, or %s", filepath.Base(d.path)+suffix, remedyExport)
		}
	}
	return nil
}

// readTables reads the names of tables and columns.
func (d *database) readTables(ctx context.Context) error {
	rows, err := d.db.QueryContext(ctx, `SELECT m.name, m.type = 'view', c.name
		FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view')`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var table, column string
		var view bool
		if err := rows.Scan(&table, &view, &column); err != nil {
			return err
		}
		table = strings.ToLower(table)
		d.views[table] = view
		if d.tables[table] == nil {
			d.tables[table] = map[string]bool{}
		}
		d.tables[table][strings.ToLower(column)] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if !d.has("StringIds", "id", "value") {
		return errors.New("it is not an export of Nsight Systems: it has no table StringIds; " + remedyOther)
	}
	return nil
}

// has reports whether a table has columns.
func (d *database) has(table string, columns ...string) bool {
	known, ok := d.tables[strings.ToLower(table)]
	for _, c := range columns {
		ok = ok && known[strings.ToLower(c)]
	}
	return ok
}

// need refuses a table without columns.
func (d *database) need(table string, columns ...string) error {
	for _, c := range columns {
		if !d.has(table, c) {
			return fmt.Errorf("it has no column %s, which gputap needs; use a newer version of nsys", c)
		}
	}
	return nil
}

// refuseView refuses a view in the place of a table.
func (d *database) refuseView(name string) error {
	if d.views[strings.ToLower(name)] {
		return fmt.Errorf("%s is a view, and gputap needs the table; %s", name, remedyExport)
	}
	return nil
}

// miss notes that an optional table or column is absent.
func (d *database) miss(name, effect string) {
	if m := (Missing{Name: name, Effect: effect}); !slices.Contains(d.missing, m) {
		d.missing = append(d.missing, m)
	}
}

// present lists those columns that a table has, as SQL.
func (d *database) present(table string, columns ...string) string {
	return strings.Join(slices.DeleteFunc(columns, func(c string) bool { return !d.has(table, c) }), ", ")
}

// columns lists columns of a table as SQL. A column that the table lacks is NULL.
func (d *database) columns(table, alias string, columns ...string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		if list[i] = "NULL"; d.has(table, c) {
			list[i] = alias + `."` + c + `"`
		}
	}
	return strings.Join(list, ", ")
}

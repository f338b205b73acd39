package nsys

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Bounds of what names remembers. It forgets everything above one, and reads again.
const (
	maxNames      = 1 << 16
	maxNamedBytes = 16 << 20
	maxFrames     = 512 // of a stack
)

// names reads texts and call stacks by their ids, and remembers those that it has read.
type names struct {
	ctx    context.Context
	conn   *sql.Conn // indexes that gputap makes belong to it
	text   *sql.Stmt
	chain  *sql.Stmt // nil: the export has no call stacks
	texts  map[int64]string
	stacks map[int64][]string
	bytes  int
}

const chainTable = "CUDA_CALLCHAINS"

func newNames(ctx context.Context, d *database) (n *names, err error) {
	n = &names{ctx: ctx, texts: map[int64]string{}, stacks: map[int64][]string{}}
	if n.conn, err = d.db.Conn(ctx); err != nil {
		return nil, err
	}
	if err := n.prepare(d); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *names) prepare(d *database) error {
	table, err := n.indexed("StringIds", "id", "id, value")
	if err != nil {
		return err
	}
	if n.text, err = n.conn.PrepareContext(n.ctx, "SELECT value FROM "+table+" WHERE id = ?"); err != nil {
		return err
	}
	if !d.has(chainTable, "id", "symbol", "stackDepth") {
		d.miss(chainTable, "no call stacks: profile with --cudabacktrace=memory")
		return nil
	}
	list := d.columns(chainTable, "c", "symbol", "module", "originalIP")
	if table, err = n.indexed(chainTable, "id", d.present(chainTable, "id", "stackDepth", "symbol", "module",
		"originalIP")); err != nil {
		return err
	}
	n.chain, err = n.conn.PrepareContext(n.ctx, fmt.Sprintf(
		"SELECT %s FROM %s c WHERE c.id = ? ORDER BY c.stackDepth LIMIT %d", list, table, maxFrames))
	return err
}

// indexed returns the name of a table that SQLite can search by a column: the table itself, or a temporary copy.
func (n *names) indexed(table, key, columns string) (string, error) {
	rows, err := n.conn.QueryContext(n.ctx, "EXPLAIN QUERY PLAN SELECT 1 FROM "+table+" WHERE "+key+" = 1")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	scans := false
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return "", err
		}
		scans = scans || strings.HasPrefix(detail, "SCAN")
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !scans {
		return table, err
	}
	_, err = n.conn.ExecContext(n.ctx, fmt.Sprintf("CREATE TEMP TABLE gputap_%[1]s AS SELECT %[2]s FROM %[1]s; "+
		"CREATE INDEX temp.gputap_by_%[1]s ON gputap_%[1]s (%[3]s)", table, columns, key))
	return "gputap_" + table, err
}

func (n *names) close() {
	for _, s := range []*sql.Stmt{n.text, n.chain} {
		if s != nil {
			_ = s.Close()
		}
	}
	_ = n.conn.Close()
}

// of returns the text of an id, or "" if there is none.
func (n *names) of(v any) (string, error) {
	id, ok := v.(int64)
	if !ok {
		return "", nil
	}
	if s, known := n.texts[id]; known {
		return s, nil
	}
	var value any
	if err := n.text.QueryRowContext(n.ctx, id).Scan(&value); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	s := text(value)
	n.remember(len(s))
	n.texts[id] = s
	return s, nil
}

func (n *names) remember(bytes int) {
	if n.bytes += bytes; n.bytes > maxNamedBytes || len(n.texts)+len(n.stacks) >= maxNames {
		clear(n.texts)
		clear(n.stacks)
		n.bytes = bytes
	}
}

// frames returns the frames of a call stack, innermost first; none if the stack is unknown.
func (n *names) frames(v any) ([]string, error) {
	id, ok := v.(int64)
	if !ok || n.chain == nil {
		return nil, nil
	}
	if frames, known := n.stacks[id]; known {
		return frames, nil
	}
	rows, err := n.chain.QueryContext(n.ctx, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found [][3]any
	for rows.Next() {
		var r [3]any
		if err := rows.Scan(&r[0], &r[1], &r[2]); err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	var frames []string
	bytes := 0
	for _, r := range found {
		f, err := n.frame(r)
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
		bytes += 16 + len(f)
	}
	n.remember(bytes)
	n.stacks[id] = frames
	return frames, nil
}

// frame returns FUNCTION (MODULE) of a symbol, a module and an address.
func (n *names) frame(r [3]any) (string, error) {
	function, err := n.of(r[0])
	if err != nil {
		return "", err
	}
	module, err := n.of(r[1])
	if err != nil {
		return "", err
	}
	if function == "" {
		function = fmt.Sprintf("%#x", bits(r[2]))
	}
	module = module[strings.LastIndexAny(module, `/\`)+1:] // a path may name users
	if module == "" {
		return function, nil
	}
	return text(function + " (" + module + ")"), nil
}

// version is what Nsight Systems adds to the names of the runtime API, such as _v3020. Names of the driver API end with
// one digit.
var version = regexp.MustCompile(`_v\d{4,5}$`)

// call returns the name of a call.
func (n *names) call(v any) (string, error) {
	s, err := n.of(v)
	return version.ReplaceAllString(s, ""), err
}

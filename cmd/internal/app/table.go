package app

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table writes rows in columns: strings aligned left, numbers and amounts aligned right. It stays our own code, because
// text/tabwriter aligns all columns of a table the same way.
type Table struct {
	header []string
	rows   [][]string
	right  []bool
}

// Amount is a number of bytes in a table, formatted by Bytes.
type Amount uint64

// NewTable returns a table with these columns.
func NewTable(columns ...string) *Table {
	return &Table{header: columns, right: make([]bool, len(columns))}
}

// Row adds a row with one cell for each column. A cell that is not a string aligns its column right.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(t.header))
	for i, c := range cells[:min(len(cells), len(row))] {
		switch c := c.(type) {
		case string:
			row[i] = Printable(c)
		case Amount:
			row[i], t.right[i] = Bytes(uint64(c)), true
		default:
			row[i], t.right[i] = fmt.Sprint(c), true
		}
	}
	t.rows = append(t.rows, row)
}

// Printable replaces control characters, because a program may have any name.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// Write writes the table with two spaces between columns.
func (t *Table) Write(w io.Writer) {
	widths := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i := range widths {
		if !t.right[i] {
			widths[i] = -widths[i] // fmt aligns left
		}
	}
	var out strings.Builder
	for _, row := range all {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%*s  ", widths[i], cell)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, _ = io.WriteString(w, out.String()) // callers that must know use a writer that keeps its error
}

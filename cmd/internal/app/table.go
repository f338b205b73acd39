package app

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table gathers rows of text and writes them in columns: strings to the left, numbers and what
// Bytes gives to the right. It has no colours, so NO_COLOR has nothing to turn off.
type Table struct {
	header []string
	rows   [][]string
	right  []bool
}

// Amount is bytes in a table, written as Bytes writes them.
type Amount uint64

// NewTable returns a table with these columns.
func NewTable(columns ...string) *Table {
	return &Table{header: columns, right: make([]bool, len(columns))}
}

// Row adds a row, one cell for each column. A cell that is no string makes its column a right one.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(t.header))
	for i, c := range cells[:min(len(cells), len(row))] {
		switch c := c.(type) {
		case string:
			row[i] = printable(c)
		case Amount:
			row[i], t.right[i] = Bytes(uint64(c)), true
		default:
			row[i], t.right[i] = fmt.Sprint(c), true
		}
	}
	t.rows = append(t.rows, row)
}

// printable keeps a program's name from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// Write writes the table, two spaces between columns.
func (t *Table) Write(w io.Writer) {
	widths := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, _ = io.WriteString(w, out.String()) // a report nobody reads is no failure
}

package smi

import (
	"errors"
	"strconv"
	"strings"
)

// columns tells which cell of a row holds what; -1 is none. width is the number of cells.
type columns struct {
	time, index, uuid, name, memory, utilization int
	width                                        int
}

var errColumns = errors.New("cannot tell the columns apart without header and units; " +
	"leave out noheader, or nounits, in --format")

// errNoLog is the reason of a row that may be of any file: a log has a header, times or units.
var errNoLog = errors.New("it has neither a time nor a memory in MiB, and no header is before it")

func noColumns(width int) columns { return columns{-1, -1, -1, -1, -1, -1, width} }

// headerColumns reads a header. A row that names no column of used memory is none.
func headerColumns(cells []string) (columns, bool) {
	c := noColumns(len(cells))
	for i, cell := range cells {
		name, _, _ := strings.Cut(strings.ToLower(cell), " [")
		switch name {
		case "timestamp":
			c.time = i
		case "index":
			c.index = i
		case "uuid", "gpu_uuid":
			c.uuid = i
		case "name", "gpu_name":
			c.name = i
		case "memory.used":
			c.memory = i
		case "utilization.gpu":
			c.utilization = i
		}
	}
	return c, c.memory >= 0
}

// guessColumns finds the columns of a row of a file without header by the form of its cells. A number without unit
// before a name or uuid is the index; behind it, or alone, the first one is the memory and the second the utilization.
func guessColumns(cells []string) (columns, error) {
	c := noColumns(len(cells))
	var numbers []int
	for i, cell := range cells {
		switch _, err := strconv.ParseUint(cell, 10, 64); {
		case c.time < 0 && isTime(cell):
			c.time = i
		case strings.HasPrefix(cell, "GPU-"):
			c.uuid = i
		case c.memory < 0 && strings.HasSuffix(cell, " MiB"):
			c.memory = i
		case c.utilization < 0 && strings.HasSuffix(cell, " %"):
			c.utilization = i
		case err == nil:
			numbers = append(numbers, i)
		case c.name < 0:
			c.name = i
		}
	}
	c, err := c.withNumbers(numbers)
	if err == nil && c.time < 0 && !strings.HasSuffix(cells[c.memory], " MiB") {
		return c, errNoLog
	}
	return c, err
}

// withNumbers gives meaning to the numbers without units.
func (c columns) withNumbers(numbers []int) (columns, error) {
	named := max(c.name, c.uuid)
	switch {
	case len(numbers) == 0 && c.memory < 0:
		return c, errors.New("it holds no memory")
	case len(numbers) > 0 && c.index < 0 && (numbers[0] < named || c.memory >= 0):
		c.index, numbers = numbers[0], numbers[1:]
	case len(numbers) > 1 && named < 0:
		return c, errColumns
	}
	if len(numbers) > 0 && c.memory < 0 {
		c.memory, numbers = numbers[0], numbers[1:]
	}
	if len(numbers) > 0 && c.utilization < 0 {
		c.utilization, numbers = numbers[0], numbers[1:]
	}
	if c.memory < 0 || len(numbers) > 0 {
		return c, errColumns
	}
	return c, nil
}

// isTime reports whether a cell looks like a timestamp: 2026/11/24 19:00:01.123.
func isTime(cell string) bool {
	return len(cell) >= 19 && cell[4] == '/' && cell[7] == '/' && cell[10] == ' '
}

package screen

import (
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/gputap/gputap/cmd/internal/app"
)

// column is one column of a table.
type column struct {
	title string
	width int
	room  int  // by how much it may be wider
	right bool // aligned right
	clip  bool // a text that is too wide has no mark
	rank  int  // columns with a lower rank stay on a narrower screen
}

// row is one row of a table.
type row struct {
	key    string // the same after each answer
	search string // text for the filter
	cells  func(now time.Time) []string
	style  style // of the first cell
}

const unknown = "-"

// fit returns the columns that fit into a width, with their widths, and their places in the list of all.
func fit(all []column, width int) (chosen []column, places []int) {
	rank, used := 0, 0
	for more := true; more; {
		more = false
		need := 0
		for _, c := range all {
			if c.rank == rank {
				need += c.width + 1
			}
			more = more || c.rank > rank
		}
		if used+need > width && rank > 0 {
			break
		}
		used += need
		rank++
	}
	for i, c := range all {
		if c.rank < rank {
			more := min(c.room, max(0, width-used))
			c.width += more
			used += more
			chosen, places = append(chosen, c), append(places, i)
		}
	}
	return chosen, places
}

// line joins cells, each behind a space.
func line(columns []column, cells []string) string {
	var out strings.Builder
	for i, c := range columns {
		text := cut(cells[i], c.width)
		if c.clip {
			text = ansi.Truncate(app.Printable(cells[i]), c.width, "")
		}
		space := strings.Repeat(" ", c.width-ansi.StringWidth(text))
		if out.WriteByte(' '); c.right {
			out.WriteString(space + text)
		} else {
			out.WriteString(text + space)
		}
	}
	return out.String()
}

func titles(columns []column) (list []string) {
	for _, c := range columns {
		list = append(list, c.title)
	}
	return list
}

// cut replaces control characters, and the end of a text that is wider than so many cells.
func cut(text string, width int) string { return ansi.Truncate(app.Printable(text), width, "…") }

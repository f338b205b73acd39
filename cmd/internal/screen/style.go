package screen

// Styles says which escape sequences a screen may contain.
type Styles int

// From plain text to colours. Marks are bold and reverse video.
const (
	Plain Styles = iota
	Marks
	Colours
)

// style is the escape sequence that begins a style.
type style string

const (
	bold    style = "\x1b[1m"
	reverse style = "\x1b[7m"
	red     style = "\x1b[31m"
	yellow  style = "\x1b[33m"
	reset         = "\x1b[m"
)

// paint styles a text, as far as the terminal may show it.
func (s Styles) paint(text string, as style) string {
	colour := as == red || as == yellow
	if as == "" || text == "" || s == Plain || colour && s != Colours {
		return text
	}
	return string(as) + text + reset
}

package app

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// IsTerminal reports whether a writer is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Progress replaces a line every second until stop is called, if to is a terminal. Otherwise it writes nothing.
func Progress(to io.Writer, line func() string) (stop func()) {
	if !IsTerminal(to) {
		return func() {}
	}
	end := Every(time.Second, func() { fmt.Fprintf(to, "\r\x1b[K%s", line()) })
	return func() {
		end()
		fmt.Fprint(to, "\r\x1b[K")
	}
}

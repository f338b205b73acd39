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

const clearLine = "\r\x1b[K"

// Progress replaces a line on standard error every second until stop is called, if that is a terminal. Otherwise it
// writes nothing. Lines of the log replace the line, too.
func (p *Process) Progress(line func() string) (stop func()) {
	if !IsTerminal(p.Stderr) {
		return func() {}
	}
	end := Every(time.Second, func() {
		text := line()
		p.progress.Lock()
		defer p.progress.Unlock()
		fmt.Fprint(p.Stderr, clearLine, text)
		p.shown = true
	})
	return func() {
		end()
		p.endLine()
	}
}

// endLine removes the line of progress, if it is shown.
func (p *Process) endLine() {
	p.progress.Lock()
	defer p.progress.Unlock()
	if p.shown {
		fmt.Fprint(p.Stderr, clearLine)
		p.shown = false
	}
}

// logWriter writes the log to standard error.
type logWriter struct{ *Process }

func (w logWriter) Write(line []byte) (int, error) {
	w.endLine()
	return w.Stderr.Write(line)
}

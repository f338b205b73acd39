package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

// format is the flag -o of a command.
type format struct {
	name  string
	words []string // the first is the default
}

func addFormat(cmd *cobra.Command, words ...string) *format {
	f := &format{words: words}
	cmd.Flags().StringVarP(&f.name, "output", "o", words[0], "output format: "+strings.Join(words, ", "))
	complete(cmd, "output", words...)
	return f
}

func (f *format) validate() error {
	if !slices.Contains(f.words, f.name) {
		return app.Usage(fmt.Errorf("--output %q: use %s", f.name, strings.Join(f.words, ", ")))
	}
	return nil
}

func (f *format) json() bool { return f.name == "json" }

// write writes v as one line of JSON, or as text.
func (f *format) write(to io.Writer, v any, text func(io.Writer)) error {
	w := &app.Output{Writer: to}
	if f.json() {
		line := json.NewEncoder(w)
		line.SetEscapeHTML(false) // kernel names have angle brackets
		_ = line.Encode(v)        // w keeps the error
	} else {
		text(w)
	}
	return w.Err
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

// output is the flag -o of a command that writes text or JSON. It is a pflag.Value.
type output struct {
	text string // name of the format that is not JSON
	json bool
}

func addOutput(cmd *cobra.Command, text string) *output {
	o := &output{text: text}
	cmd.Flags().VarP(o, "output", "o", "output format: "+text+" or json")
	completeWith(cmd, "output", text, "json")
	return o
}

func (o *output) Set(format string) error {
	if o.json = format == "json"; !o.json && format != o.text {
		return fmt.Errorf("use %s or json", o.text)
	}
	return nil
}

func (o *output) String() string {
	if o.json {
		return "json"
	}
	return o.text
}

func (o *output) Type() string { return "string" }

// write writes v as one line of JSON, or as text.
func (o *output) write(to io.Writer, v any, text func(io.Writer)) error {
	w := &app.Output{Writer: to}
	if o.json {
		line := json.NewEncoder(w)
		line.SetEscapeHTML(false) // kernel names have angle brackets
		_ = line.Encode(v)        // w keeps the error
	} else {
		text(w)
	}
	return w.Err
}

// completeWith offers fixed values for a flag to the shell.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeFiles offers files of an extension as the arguments of a command.
func completeFiles(cmd *cobra.Command, extension string) {
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{extension}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// timestamp formats a time for a table; the zero time is "".
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func writeLine(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

// outputFlag adds -o to a command that prints a table or JSON.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "output format: table or json")
	completeWith(cmd, "output", "table", "json")
}

func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return app.Usage(fmt.Errorf("--output %q: use table or json", output))
	}
	return nil
}

// completeWith offers fixed values for a flag to the shell.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// errorWriter remembers the first error of a writer, so that a table can be written without checking each line.
type errorWriter struct {
	io.Writer
	err error
}

func (w *errorWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// timestamp formats a time for a table; the zero time is "".
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func writeLine(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

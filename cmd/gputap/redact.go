package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/redact"
	"github.com/gputap/gputap/cmd/internal/source"
)

func redactCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redact FILE",
		Short: "Copy a recording and replace private names",
		Long: `Copy a recording and replace private names by pseudonyms such as user-3f2a91c06b7d, so that the copy may be shared:
users, jobs, paths of programs, libraries and control groups, containers, pods, units, hosts and clusters. Equal names
have equal pseudonyms in the copy, also in its state and subjects. The pseudonyms are keyed hashes, and the key is not
stored. Texts of alerts are removed.

Names of programs (comm), threads and CUDA kernels stay, and so do UUIDs of GPUs, boot ids, PIDs, UIDs and times. A
message that is no valid batch is left out.

Exit status: 0 success; 1 an error; 2 wrong flags; 4 the recording is damaged, or messages were left out.`,
		Example: "  gputap record redact hour.gtr -o shared.gtr\n" +
			"  gputap record --nats.url nats://bus:4222 --redact -o shared.gtr",
		Args: cobra.ExactArgs(1),
	}
	output := cmd.Flags().StringP("output", "o", "", "new file to write; - is standard output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return redactFile(cmd.Context(), p, args[0], *output) }
	completeFiles(cmd, "gtr")
	return cmd
}

// redactFile writes a redacted copy. After an error it leaves no file.
func redactFile(ctx context.Context, p *app.Process, in, out string) error {
	switch {
	case out == "":
		return app.Usage(errors.New("--output: empty; set the file to write with -o FILE"))
	case out == "-" && app.IsTerminal(p.Stdout):
		return app.Usage(errors.New("--output -: standard output is a terminal; redirect it, or use -o FILE"))
	case out == "-":
		s, err := redact.File(ctx, in, p.Stdout, p.Log)
		if err != nil {
			return err
		}
		return concludeRedaction(p.Stderr, "standard output", s)
	}
	part := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".part")
	if err := errors.Join(source.NotInput(out, in), source.NotInput(part, in)); err != nil {
		return err
	}
	file, err := createNew(out, part)
	if err != nil {
		return fmt.Errorf("create the redacted recording: %w", err)
	}
	s, err := redact.File(ctx, in, file, p.Log)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = nameNew(part, out)
	}
	_ = os.Remove(part) // a link to it is left, if all is well
	if err != nil {
		return err
	}
	return concludeRedaction(p.Stdout, out, s)
}

// createNew creates a file that nameNew gives its name when it is complete: a part of a recording looks like a whole.
func createNew(name, part string) (*os.File, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EEXIST}
	}
	return os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
}

// nameNew refuses a name that a file has.
func nameNew(part, name string) error {
	err := os.Link(part, name)
	if err != nil && !errors.Is(err, os.ErrExist) { // the file system has no links
		err = os.Rename(part, name)
	}
	if err != nil {
		return fmt.Errorf("name the redacted recording: %w", err)
	}
	return nil
}

func concludeRedaction(to io.Writer, out string, s *redact.Stats) error {
	w := &app.Output{Writer: to}
	writeLine(w, "%s: %s, %s with %s", out, app.Bytes(uint64(s.Bytes)), app.Plural(s.Messages, "message", "messages"),
		app.Plural(s.Events, "event", "events"))
	switch {
	case s.Damages > 0:
		return app.Incomplete(fmt.Errorf("redact the recording: %s damaged; the log names them",
			app.Plural(s.Damages, "part is", "parts are")))
	case s.Late > 0:
		return app.Incomplete(fmt.Errorf("redact the recording: %s left out, because later ones come before",
			app.Plural(s.Late, "message was", "messages were")))
	case s.LeftOut > 0:
		return app.Incomplete(fmt.Errorf("redact the recording: %s left out, because the names in them are not known",
			app.Plural(s.LeftOut, "part was", "parts were")))
	}
	return w.Err
}

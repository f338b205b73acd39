package main

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

func versionCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of gputap, of Go and the platform",
		Long:    "Print the version of gputap, of Go and the platform.\n\nExit status: 0 success; 2 wrong flags.",
		Example: "  gputap version\n  gputap version -o json",
		Args:    cobra.NoArgs,
	}
	out := addOutput(cmd, "text")
	cmd.RunE = func(*cobra.Command, []string) error {
		platform := runtime.GOOS + "/" + runtime.GOARCH
		versions := map[string]string{"version": app.Version(), "go": runtime.Version(), "platform": platform}
		return out.write(p.Stdout, versions, func(w io.Writer) {
			writeLine(w, "gputap %s %s %s", app.Version(), runtime.Version(), platform)
		})
	}
	return cmd
}

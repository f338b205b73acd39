package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

func versionCommand(p *app.Process) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of gputap, of Go and the platform",
		Example: "  gputap version\n  gputap version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			switch output {
			case "json":
				return json.NewEncoder(p.Stdout).Encode(map[string]string{
					"version": app.Version(), "go": runtime.Version(), "platform": platform,
				})
			case "text":
				_, err := fmt.Fprintf(p.Stdout, "gputap %s %s %s\n", app.Version(), runtime.Version(), platform)
				return err
			}
			return app.Usage(fmt.Errorf("--output %q: use text or json", output))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	completeWith(cmd, "output", "text", "json")
	return cmd
}

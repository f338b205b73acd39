package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
)

// configuredProgram is a program that reads a configuration.
type configuredProgram struct {
	name  string
	print func(name string, args []string) error
}

func configured() []configuredProgram {
	programs := []configuredProgram{{"producer", printing(config.DefaultProducerCommand())}}
	for _, f := range fold.All() {
		programs = append(programs, configuredProgram{f.Name(), f.PrintConfig})
	}
	return append(programs, configuredProgram{"run", printing(config.DefaultRunCommand())})
}

func printing[T interface{ Validate() error }](defaults T) func(string, []string) error {
	return func(name string, args []string) error {
		_, err := config.Load(name, append(slices.Clone(args), "--print-config"), defaults)
		return err
	}
}

func configCommand() *cobra.Command {
	programs := configured()
	var names []string
	for _, c := range programs {
		names = append(names, c.name)
	}
	list := strings.Join(names, ", ")
	show := &cobra.Command{
		Use:   "print PROGRAM [FLAG…]",
		Short: "Print a program's configuration from all sources as YAML",
		Long: `Print the configuration of a program as a YAML file that explains each key. It takes the flags of the program,
and reads its file and its variables. Passwords are hidden.

Programs: ` + list + `

Exit status: 0 printed; 2 wrong flags or configuration.`,
		Example:   "  gputap config print leak > gputap.yaml\n  gputap config print producer --config gputap.yaml",
		ValidArgs: names, DisableFlagParsing: true,
	}
	show.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return app.Usage(fmt.Errorf("no program given; use one of %s", list))
		}
		if args[0] == "-h" || args[0] == "--help" {
			return cmd.Help()
		}
		i := slices.Index(names, strings.TrimPrefix(args[0], "gputap-"))
		if i < 0 {
			return app.Usage(fmt.Errorf("unknown program %q; use one of %s", args[0], list))
		}
		if err := programs[i].print("gputap config print "+args[0], args[1:]); !errors.Is(err, config.ErrHelp) {
			return app.Usage(err)
		}
		return nil
	}
	cmd := &cobra.Command{
		Use: "config", Short: "Print the configuration of a program", Example: show.Example,
		Long: `Print the configuration of a program.

Exit status: 0 printed; 2 wrong flags or configuration.`,
	}
	cmd.AddCommand(show)
	return group(cmd)
}

// Command gputap is the tool that people type: the whole pipeline in one process, the demo, and questions about a host
// or a bus.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/analyze"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/backtest"
	"github.com/gputap/gputap/cmd/internal/export"
	"github.com/gputap/gputap/cmd/internal/inspect"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/preflight"
)

func main() { app.Main("gputap", run) }

func run(ctx context.Context, p *app.Process) error {
	root := &cobra.Command{
		Use:   "gputap",
		Short: "See what every CUDA process of a host does with GPU memory, kernels and copies",
		Long: `gputap watches the CUDA driver calls of every process with eBPF uprobes, without changing the programs, and
publishes them to NATS JetStream. Consumers turn the streams into answers.

Exit status of every command: 0 success; 1 an error; 2 wrong flags or configuration; 3 a check failed;
4 data are missing; 5 NATS is unreachable; 6 privileges are missing; 128 + N a second signal N.`,
		Example: `  sudo gputap run                       # watch this host
  sudo gputap run -- python3 train.py   # watch one command
  sudo gputap demo                      # see it work without a GPU
  gputap top                            # who holds memory, who leaks, who waits
  gputap doctor                         # list what is missing on this host, with remedies`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetArgs(p.Args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 { // the flag is that of the command
			return unknownCommand(cmd, before[0])
		}
		return app.Usage(fmt.Errorf("%w; see %s --help", config.FlagError(err), cmd.CommandPath()))
	})
	group(root).AddCommand(commands(p)...)
	root.SetGlobalNormalizationFunc(config.FlagName)
	rejectUnknownTopics(root)
	explainArguments(root)
	return root.ExecuteContext(ctx)
}

func commands(p *app.Process) []*cobra.Command {
	list := []*cobra.Command{
		runCommand(p), demoCommand(p), doctorCommand(p), streamCommand(p), recordCommand(p), replayCommand(p),
		group(analyze.Command(p)), group(analyze.PlotCommand(p)), group(export.Command(p)),
		group(backtest.Command(p)), simulateCommand(p),
		configCommand(), versionCommand(p),
	}
	for _, c := range inspect.Commands(p) {
		if c.HasSubCommands() {
			group(c)
		}
		list = append(list, c)
	}
	return list
}

// group makes a command that only has commands of its own print its help, and fail for an unknown command.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return cmd.Help()
	}
	return cmd
}

// unknownCommand suggests a command only if it differs from the given one by a typing mistake. Else it lists the
// commands below the parent, unless the parent is gputap itself, which has too many for a line.
func unknownCommand(parent *cobra.Command, given string) error {
	var names []string
	for _, c := range parent.Commands() {
		names = append(names, c.Name())
	}
	if nearest := config.Nearest(given, names); nearest != "" {
		return app.Usage(fmt.Errorf("unknown command %q: did you mean %s %s?", given, parent.CommandPath(), nearest))
	}
	if parent.HasParent() {
		return app.Usage(fmt.Errorf("unknown command %q: use %s %s", given, parent.CommandPath(),
			strings.Join(names, ", ")))
	}
	return app.Usage(fmt.Errorf("unknown command %q; see %s --help", given, parent.CommandPath()))
}

// rejectUnknownTopics makes cobra's help and completion commands fail for an unknown argument. By default they print
// help and succeed.
func rejectUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, topic []string) error {
				if found, rest, err := root.Find(topic); err != nil || len(rest) > 0 {
					return unknownCommand(found, strings.Join(topic, " "))
				}
				return nil
			}
		case "completion":
			group(c)
		}
	}
}

// optional matches the parts of an argument's name that may be left out: [HOST/]PID, FILE….
var optional = regexp.MustCompile(`\[[^]]*\]|…`)

// explainArguments replaces cobra's errors about arguments by ones that name the argument, for a command and those
// below it. Errors that already have an exit status stay.
func explainArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explainArguments(c)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		_, names, _ := strings.Cut(cmd.Use, " ")
		switch each := strings.Fields(names); {
		case err == nil || app.ExitCode(err) != 1:
			return err
		case len(args) > 0 && len(args) < len(each) && check(cmd, append(slices.Clip(args), "")) == nil:
			return app.Usage(fmt.Errorf("no %s given; use %s %s", each[len(args)], cmd.CommandPath(), names))
		case len(args) == 0:
			return app.Usage(fmt.Errorf("no %s given; use %s %s", optional.ReplaceAllString(names, ""),
				cmd.CommandPath(), names))
		}
		first := len(args) - 1 // unexpected argument: it follows the most arguments that are right
		for first > 0 && check(cmd, args[:first]) != nil {
			first--
		}
		return app.Usage(fmt.Errorf("unexpected argument %q; see %s --help", args[first], cmd.CommandPath()))
	}
}

// privilege gives missing privileges, and a Linux without safe return probes, their exit status.
func privilege(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, preflight.ErrReturnProbes) {
		return app.Privilege(err)
	}
	return err
}

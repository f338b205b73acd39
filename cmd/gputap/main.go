// Command gputap is the tool people type: the whole pipeline in one process, the demo, and the
// questions about a host.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/producer/preflight"
)

func main() { app.Main("gputap", run) }

func run(ctx context.Context, p *app.Process) error {
	root := &cobra.Command{
		Use:   "gputap",
		Short: "See what every CUDA process of a host does with GPU memory, kernels and copies",
		Long: `gputap watches the CUDA driver calls of every process through eBPF uprobes, without touching the
programs, and streams them through NATS JetStream to consumers that turn them into answers.`,
		Example: `  sudo gputap run                    watch this host
  sudo gputap run -- python train.py  watch one command
  sudo gputap demo                   see it work without a GPU
  gputap doctor                      what is missing here, and the remedy`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetArgs(p.Args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return app.Usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	root.AddCommand(commands(p)...)
	refuseTopics(root)
	err := root.ExecuteContext(ctx)
	if err != nil && isUsage(err) {
		return app.Usage(err)
	}
	return err
}

func commands(p *app.Process) []*cobra.Command {
	return []*cobra.Command{runCommand(p), demoCommand(p), doctorCommand(p), streamCommand(p), simulateCommand(p), configCommand(), versionCommand(p)}
}

// refuseTopics has the commands of cobra's own fail where it prints help and ends well.
func refuseTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, topic []string) error {
				if _, rest, err := root.Find(topic); err != nil || len(rest) > 0 {
					return fmt.Errorf("unknown command %q: see %s --help", strings.Join(topic, " "), root.Name())
				}
				return nil
			}
		case "completion":
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(cmd *cobra.Command, shell []string) error {
				if len(shell) > 0 {
					return fmt.Errorf("unknown command %q: use bash, zsh, fish or powershell", shell[0])
				}
				return cmd.Help()
			}
		}
	}
}

// isUsage recognises what cobra itself complains of: it has no type for it.
func isUsage(err error) bool {
	msg := err.Error()
	for _, prefix := range []string{"unknown command", "accepts ", "requires ", "unknown shorthand", "unknown flag"} {
		if len(msg) >= len(prefix) && msg[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

// privilege gives missing rights, and a Linux that cannot, their own exit status.
func privilege(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, preflight.ErrReturnProbes) {
		return app.Privilege(err)
	}
	return err
}

// exitStatus is how a shell writes the end of a process.
func exitStatus(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

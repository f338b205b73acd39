package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
)

// child is the command that gputap run starts. Without a command it never ends.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	exit  error
}

// childGrace is how long a command may take to end after SIGINT.
const childGrace = 10 * time.Second

func startChild(command []string, output io.Writer) (*child, error) {
	c := &child{ended: make(chan struct{})}
	if len(command) == 0 {
		return c, nil
	}
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, output, os.Stderr
	if err := c.cmd.Start(); err != nil {
		return nil, app.Usage(fmt.Errorf("start %s: %w", command[0], err))
	}
	go func() {
		c.exit = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// stop ends a command that still runs: with SIGINT, and after childGrace with SIGKILL.
func (c *child) stop() {
	if c.cmd == nil {
		return
	}
	select {
	case <-c.ended:
		return
	default:
	}
	_ = c.cmd.Process.Signal(os.Interrupt)
	select {
	case <-c.ended:
	case <-time.After(childGrace):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// err returns an error with the exit status that a shell would report for the command.
func (c *child) err() error {
	if c.cmd == nil || c.exit == nil {
		return nil
	}
	var exit *exec.ExitError
	if !errors.As(c.exit, &exit) {
		return fmt.Errorf("run %s: %w", c.cmd.Path, c.exit)
	}
	status := exit.ExitCode()
	if wait, ok := exit.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		status = 128 + int(wait.Signal())
	}
	return app.Exit(status, fmt.Errorf("run %s: %w", c.cmd.Path, c.exit))
}

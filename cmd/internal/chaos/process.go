package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a program of the fleet that is started again and again. Its output is appended to one file.
type process struct {
	name string
	args []string // with the program
	dir  string

	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

func (p *process) start() error {
	log, err := os.OpenFile(filepath.Join(p.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		p.err = cmd.Wait()
		close(ended)
	}(p.cmd, p.ended)
	return nil
}

func (p *process) running() bool {
	if p.ended == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(s) // it may end meanwhile
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	p.wait(time.Minute)
}

// end asks the program to end and gives it a time.
func (p *process) end(s syscall.Signal, within time.Duration) error {
	p.signal(s)
	if !p.wait(within) {
		p.kill()
		return fmt.Errorf("%s does not end within %s", p.name, within)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
	return nil
}

func (p *process) wait(within time.Duration) bool {
	if p.ended == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	case <-time.After(within):
		return false
	}
}

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that is started, perhaps again and again. Its output is appended to one file, Dir/Name.log.
type Process struct {
	Name string
	Args []string // with the program
	Dir  string
	CPUs []int    // it runs on these alone, with GOMAXPROCS as many; none: on all
	Out  string   // file of its standard output instead; ""
	Env  []string // besides this process's

	cmd   *exec.Cmd
	begun time.Time
	ended chan struct{}
	err   error
}

// beginning is how long a program may take until it minds signals: before, it just dies of them.
const beginning = 2 * time.Second

// Start starts it, if need be again.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.Args[0], p.Args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), p.Env...)
	if p.Out != "" {
		out, err := os.Create(p.Out)
		if err != nil {
			return err
		}
		defer out.Close()
		p.cmd.Stdout = out
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.startOnCPUs(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.begun, p.ended = time.Now(), make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		p.err = cmd.Wait()
		close(ended)
	}(p.cmd, p.ended)
	return nil
}

// startOnCPUs has this thread take the CPUs for a moment: a child inherits them.
func (p *Process) startOnCPUs() error {
	if len(p.CPUs) == 0 {
		return p.cmd.Start()
	}
	p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS="+strconv.Itoa(len(p.CPUs)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	for _, cpu := range p.CPUs {
		only.Set(cpu)
	}
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read the CPUs of a thread: %w", err)
	}
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("run on the CPUs %v, which this machine may not have: %w", p.CPUs, err)
	}
	return errors.Join(p.cmd.Start(), unix.SchedSetaffinity(0, &before))
}

// Log is the path of its output.
func (p *Process) Log() string { return filepath.Join(p.Dir, p.Name+".log") }

// Running says whether it was started and has not ended.
func (p *Process) Running() bool {
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

// Err is how it ended, once it has.
func (p *Process) Err() error { return p.err }

// Signal does nothing to a process that has ended.
func (p *Process) Signal(s syscall.Signal) {
	if p.Running() {
		_ = p.cmd.Process.Signal(s) // it may end meanwhile
	}
}

// Kill ends it at once.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	p.wait(time.Minute)
}

// End asks the program to end and gives it a time. How it exited is Err's.
func (p *Process) End(s syscall.Signal, within time.Duration) error {
	time.Sleep(time.Until(p.begun.Add(beginning)))
	p.Signal(s)
	if !p.wait(within) {
		p.Kill()
		return fmt.Errorf("%s does not end within %s", p.Name, within)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return fmt.Errorf("%s: %w", p.Name, p.err)
	}
	return nil
}

func (p *Process) wait(within time.Duration) bool {
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

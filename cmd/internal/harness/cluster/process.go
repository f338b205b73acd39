package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that can be started several times. Its output is appended to one file, Dir/Name.log.
type Process struct {
	Name string
	Args []string // the program and its arguments
	Dir  string
	CPUs []int    // taskset runs it on these alone, with GOMAXPROCS set to their number; none: on all
	Out  string   // file for standard output; empty: the log
	Env  []string // in addition to this process's environment

	cmd   *exec.Cmd
	begun time.Time
	ended chan struct{}
	err   error
}

// warmup is how long a program may take to install its signal handlers. A signal before that just kills it.
const warmup = 2 * time.Second

// Start starts the program, also after it has ended.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args, env := p.Args, append(os.Environ(), p.Env...)
	if n := len(p.CPUs); n > 0 {
		cpus := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.CPUs), " ", ","), "[]")
		args = append([]string{"taskset", "--cpu-list", cpus}, args...)
		env = append(env, "GOMAXPROCS="+strconv.Itoa(n))
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, log, log
	if p.Out != "" {
		out, err := os.Create(p.Out)
		if err != nil {
			return err
		}
		defer out.Close()
		p.cmd.Stdout = out
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.begun, p.ended = time.Now(), make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		p.err = cmd.Wait()
		close(ended)
	}(p.cmd, p.ended)
	return nil
}

// Log returns the path of the program's output.
func (p *Process) Log() string { return filepath.Join(p.Dir, p.Name+".log") }

// PID is that of a process that was started.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running reports whether the process was started and has not ended.
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

// CheckRunning returns nil while every process runs, and otherwise why one has ended.
func CheckRunning(list ...*Process) error {
	for _, p := range list {
		if !p.Running() {
			return p.failure("ended by itself")
		}
	}
	return nil
}

func (p *Process) failure(what string) error {
	text, _ := os.ReadFile(p.Log())
	last := string(text[max(0, len(text)-2000):])
	if crashes := crash.FindAllString(string(text), -1); len(crashes) > 0 {
		last = crashes[len(crashes)-1]
	}
	return fmt.Errorf("%s %s: %w: %s (see %s)", p.Name, what, p.err, last, p.Log())
}

// crash matches the line in which a Go program says why it crashed.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error): .*$`)

// Signal sends a signal to a running process, and does nothing to one that has ended.
func (p *Process) Signal(s syscall.Signal) {
	if p.Running() {
		_ = p.cmd.Process.Signal(s) // the process may end at this moment
	}
}

// Kill sends SIGKILL and waits until the process has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	p.wait(time.Minute)
}

// Wait waits until a started process has ended. It must exit with status 0.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.err != nil {
		return p.failure("failed")
	}
	return nil
}

// Result waits until the process has ended, and decodes the JSON that it printed to Out.
func (p *Process) Result(ctx context.Context, v any) error {
	if err := p.Wait(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(p.Out)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("read the output of %s: %w", p.Name, err)
	}
	return nil
}

// End sends a signal and waits until the process has ended, with any status. A process that does not end in time is
// killed.
func (p *Process) End(s syscall.Signal, within time.Duration) error {
	time.Sleep(time.Until(p.begun.Add(warmup)))
	p.Signal(s)
	if !p.wait(within) {
		p.Kill()
		return fmt.Errorf("stop %s: it was still running after %s; see %s", p.Name, within, p.Log())
	}
	return nil
}

// Stop is End for a process that must be running, and must exit with status 0.
func (p *Process) Stop(s syscall.Signal, within time.Duration) error {
	if err := CheckRunning(p); err != nil {
		return err
	}
	if err := p.End(s, within); err != nil {
		return err
	}
	if p.err != nil {
		return p.failure("failed while it stopped")
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

// Usage is the resource usage of a process since its start.
type Usage struct {
	CPU     time.Duration // of all threads, ended ones included
	Written int64         // bytes written to disks; 0 for a process that has ended
}

// Usage returns the usage of a started process.
func (p *Process) Usage() (u Usage, err error) {
	if !p.Running() {
		if p.cmd == nil || p.cmd.ProcessState == nil {
			return u, fmt.Errorf("%s was not started", p.Name)
		}
		u.CPU = p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		return u, nil
	}
	pid := p.cmd.Process.Pid
	const schedulerClock = 2 // CPUCLOCK_SCHED, of a whole process: see clock_getcpuclockid(3)
	var ran unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|schedulerClock, &ran); err != nil {
		return u, fmt.Errorf("read the CPU time of %s: %w", p.Name, err)
	}
	u.CPU = time.Duration(ran.Nano())
	io, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	_, written, _ := strings.Cut(string(io), "\nwrite_bytes: ")
	_, _ = fmt.Sscan(written, &u.Written)
	return u, nil
}

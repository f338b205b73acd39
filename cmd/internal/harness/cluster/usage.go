package cluster

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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

package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process has used since it began.
type Usage struct {
	CPU      time.Duration // of all its threads, those that ended as well
	Resident int64         // bytes, the most there were; 0 of a process that has ended
	Read     int64         // bytes from disks: what was in memory does not count
	Written  int64         // bytes for disks
}

// Usage of a process that was started. Of one that has ended only CPU is known.
func (p *Process) Usage() (Usage, error) {
	if !p.Running() {
		if p.cmd == nil || p.cmd.ProcessState == nil {
			return Usage{}, fmt.Errorf("%s was not started", p.Name)
		}
		return Usage{CPU: p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()}, nil
	}
	pid := p.cmd.Process.Pid
	const schedulerClock = 2 // CPUCLOCK_SCHED, of a whole process: see clock_getcpuclockid(3)
	var ran unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|schedulerClock, &ran); err != nil {
		return Usage{}, fmt.Errorf("read the CPU time of %s: %w", p.Name, err)
	}
	status, io := procFile(pid, "status"), procFile(pid, "io")
	return Usage{
		CPU: time.Duration(ran.Nano()), Resident: status["VmHWM"] << 10, Read: io["read_bytes"], Written: io["write_bytes"],
	}, nil
}

// procFile reads the numbers of a file of lines "name: number"; none of one that may not be read.
func procFile(pid int, name string) map[string]int64 {
	numbers := map[string]int64{}
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(value); len(fields) > 0 {
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
				numbers[key] = n
			}
		}
	}
	return numbers
}

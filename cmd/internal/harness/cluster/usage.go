package cluster

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the resource usage of a process since its start.
type Usage struct {
	CPU      time.Duration // of all threads, ended ones included
	Resident int64         // peak, in bytes; 0 for a process that has ended
	Read     int64         // bytes read from disks, without the page cache
	Written  int64         // bytes written to disks
}

// Usage returns the usage of a started process. After the end of the process it returns only CPU.
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
		CPU: time.Duration(ran.Nano()), Resident: status["VmHWM"] << 10,
		Read: io["read_bytes"], Written: io["write_bytes"],
	}, nil
}

// procFile reads a file with lines "name: number". A file that cannot be read has no numbers.
func procFile(pid int, name string) map[string]int64 {
	numbers := map[string]int64{}
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	for _, m := range regexp.MustCompile(`(?m)^(\w+):\s+(\d+)`).FindAllStringSubmatch(string(data), -1) {
		numbers[m[1]], _ = strconv.ParseInt(m[2], 10, 64)
	}
	return numbers
}

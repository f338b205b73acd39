package filter

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/procfs"
)

// Resolve translates the user's filter into the values that Linux compares. Control groups are not part of the
// result: a CgroupTree follows them.
func Resolve(cfg config.Filter, log *slog.Logger) (bpf.Filter, error) {
	f := bpf.Filter{PIDs: map[uint32]uint64{}}
	for _, comm := range cfg.Comm {
		if len(comm) > bpf.CommBytes {
			log.Warn("process name of the filter is too long for Linux; its first 15 bytes are compared",
				"comm", comm, "compared", comm[:bpf.CommBytes])
			comm = comm[:bpf.CommBytes]
		}
		f.Comms = append(f.Comms, comm)
	}
	for _, entry := range cfg.PID {
		pid, created, err := runningProcess(entry)
		if err != nil {
			return f, fmt.Errorf("filter.pid: %w", err)
		}
		f.PIDs[pid] = created
	}
	var accounts procfs.Accounts
	for _, entry := range cfg.UID {
		uid, err := userID(entry, &accounts)
		if err != nil {
			return f, fmt.Errorf("filter.uid: %w", err)
		}
		f.UIDs = append(f.UIDs, uid)
	}
	if len(cfg.Cgroup) > 0 {
		f.Cgroups |= bpf.FilterCgroup
	}
	if len(cfg.Container) > 0 {
		f.Cgroups |= bpf.FilterContainer
	}
	return f, nil
}

// runningProcess returns a running process of this host and its creation time in ticks.
func runningProcess(entry string) (pid uint32, created uint64, err error) {
	n, err := strconv.ParseUint(entry, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	dir := fmt.Sprintf("/proc/%d/", n)
	leader := strings.TrimSpace(procfs.StatusField(procfs.ReadFile(dir+"status"), "Tgid:"))
	created = procfs.StartTicks(procfs.ReadFile(dir + "stat"))
	switch {
	case leader == "" || created == 0:
		return 0, 0, fmt.Errorf("no process %d is running: start it first, or filter by name (filter.comm)", n)
	case leader != strconv.FormatUint(n, 10):
		return 0, 0, fmt.Errorf("%d is a thread of process %s: use that pid", n, leader)
	}
	return uint32(n), created, nil
}

func userID(entry string, accounts *procfs.Accounts) (uint32, error) {
	if n, err := strconv.ParseUint(entry, 10, 32); err == nil {
		return uint32(n), nil
	}
	uid, known := accounts.UID(entry)
	if !known {
		return 0, fmt.Errorf("no user %q in /etc/passwd of this host: use a number", entry)
	}
	return uid, nil
}

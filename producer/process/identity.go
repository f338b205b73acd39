package process

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// identity reads from /proc who a process is, when the table first sees it. One goroutine uses it.
type identity struct {
	accounts procfs.Accounts
	depths   procfs.CgroupDepths
	listed   bool // /proc lists the pids of the records: it is the host's, or a process was found there
	jobs     bool // read the job and rank
	host     string
}

func newIdentity() *identity {
	return &identity{
		depths: procfs.DepthsOf(procfs.ReadFile("/proc/1/cgroup")), listed: procfs.InHostPIDNamespace(),
	}
}

// complete fills in what /proc shows of p. Its thread tid, created at start, proves that /proc shows p and no later
// process with the same pid. If p is gone, Exe is empty and the fields that come only from /proc stay as they are. env
// has the variables that gputap reads; nil: they cannot be read.
func (i *identity) complete(
	p schema.Process, tid uint32, start schema.KTime,
) (completed schema.Process, env map[string]string) {
	announced := p.Start != 0
	p.Exe, p.User = "", ""
	if announced {
		p.User = i.accounts.Name(p.UID)
	}
	dir, err := procfs.OpenProcess(p.PID, tid, start)
	if err != nil {
		return p, nil
	}
	defer dir.Close()
	i.listed = true
	p.Exe, _ = dir.Readlink("exe")
	status, err := dir.ReadFile("status")
	if err == nil {
		p.NSPID = nsPID(string(status), p.PID)
		if !announced {
			p.UID = realUID(string(status))
			p.User = i.accounts.Name(p.UID)
		}
	}
	if b, err := dir.ReadFile("cgroup"); err == nil {
		c := procfs.CgroupOf(string(b), i.depths)
		p.Cgroup, p.Container, p.Pod, p.Unit = c.Path, c.Container(), c.Pod(), c.Unit()
	}
	if f, err := dir.Open("environ"); err == nil {
		env, err = procfs.Variables(f, variables)
		_ = f.Close()
		if err == nil && i.jobs {
			setJob(&p, env, i.host)
		}
	}
	return p, env
}

// nsPID returns a process's pid in its own namespace, the last of NSpid; 0 when it equals pid.
func nsPID(status string, pid uint32) uint32 {
	fields := strings.Fields(procfs.StatusField(status, "NSpid:"))
	if len(fields) == 0 {
		return 0
	}
	own, err := strconv.ParseUint(fields[len(fields)-1], 10, 32)
	if err != nil || uint32(own) == pid {
		return 0
	}
	return uint32(own)
}

// realUID returns the first of real, effective, saved and file system uid.
func realUID(status string) uint32 {
	var uid uint32
	_, _ = fmt.Sscan(procfs.StatusField(status, "Uid:"), &uid)
	return uid
}

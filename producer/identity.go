package producer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// identity reads what /proc tells of a process when it is first seen. One goroutine uses it.
type identity struct {
	accounts accounts
	above    cgroupDepths
	listed   bool // /proc lists the pids of the records: it is the host's, or some process was found there
}

// hostPIDs is the host's own namespace of pids, the same on every Linux.
const hostPIDs = "pid:[4026531836]"

func newIdentity() *identity {
	own, _ := os.Readlink("/proc/self/ns/pid")
	return &identity{above: depthsOf(readFile("/proc/1/cgroup")), listed: own == hostPIDs}
}

// of completes p. The thread tid of the process, created at start, says that the directory below /proc is
// still that of p and of no later process with its pid: then Linux answers for it alone as long as it is
// open. Of a process that is gone Exe is empty, and what only /proc tells stays as it is.
func (i *identity) of(p schema.Process, tid uint32, start schema.KTime) schema.Process {
	announced := p.Start != 0
	p.Exe, p.User = "", ""
	if announced {
		p.User = i.accounts.name(p.UID)
	}
	dir, err := openProcess(p.PID, tid, start)
	if err != nil {
		return p
	}
	defer dir.Close()
	i.listed = true
	p.Exe, _ = dir.Readlink("exe")
	status, err := dir.ReadFile("status")
	if err == nil {
		p.NSPID = nsPID(string(status), p.PID)
		if !announced {
			p.UID = realUID(string(status))
			p.User = i.accounts.name(p.UID)
		}
	}
	if b, err := dir.ReadFile("cgroup"); err == nil {
		c := cgroupIn(string(b), i.above)
		p.Cgroup, p.Container, p.Pod, p.Unit = c.path, c.container(), c.pod(), c.unit()
	}
	return p
}

// tick is the unit of times in /proc: sysconf(_SC_CLK_TCK) is 100 wherever Linux runs.
const tick = schema.KTime(10 * time.Millisecond)

func openProcess(pid, tid uint32, start schema.KTime) (*os.Root, error) {
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, err
	}
	stat, err := dir.ReadFile(fmt.Sprintf("task/%d/stat", tid))
	if err == nil && startTicks(string(stat)) != uint64(start/tick) {
		err = fmt.Errorf("process %d is another one", pid)
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// running reports whether a process goes on, with whatever threads; start 0 is any. What cannot be read is
// taken to run.
func running(pid uint32, start schema.KTime) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	stat := string(b)
	if start != 0 && startTicks(stat) != uint64(start/tick) {
		return false
	}
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 18 {
		return true
	}
	dead := fields[0] == "X" || fields[0] == "Z" && fields[17] == "1" // a leader may end before other threads
	return !dead
}

// exists reports whether a thread is there.
func exists(pid, tid uint32) bool {
	return unix.Access(fmt.Sprintf("/proc/%d/task/%d", pid, tid), unix.F_OK) == nil
}

// startTicks is field 22 of a stat file: when the task was created, in ticks since boot. Field 2, the
// name in brackets, may hold anything.
func startTicks(stat string) uint64 {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

// nsPID is a process's pid in its own namespace, the last and innermost of NSpid; 0 when that is pid.
func nsPID(status string, pid uint32) uint32 {
	fields := strings.Fields(lineOf(status, "NSpid:"))
	if len(fields) == 0 {
		return 0
	}
	own, err := strconv.ParseUint(fields[len(fields)-1], 10, 32)
	if err != nil || uint32(own) == pid {
		return 0
	}
	return uint32(own)
}

// realUID is the first of real, effective, saved and file system uid.
func realUID(status string) uint32 {
	var uid uint32
	_, _ = fmt.Sscan(lineOf(status, "Uid:"), &uid)
	return uid
}

// lineOf is what a status file says behind a key.
func lineOf(status, key string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return rest
		}
	}
	return ""
}

// passwdFiles are the places of the host's user names, best first: inside a container that shares the
// host's pids, /etc/passwd is the container's own.
var passwdFiles = []string{hostRoot + "/etc/passwd", "/etc/passwd"}

// accounts names uids by the host's passwd file, which is read again when it has changed.
type accounts struct {
	size  int64
	time  time.Time
	names map[uint32]string
}

// name is "" for a uid without one.
func (u *accounts) name(uid uint32) string {
	u.refresh(passwdFiles)
	return u.names[uid]
}

// uid is the number of a user.
func (u *accounts) uid(name string) (uint32, bool) {
	u.refresh(passwdFiles)
	for uid, n := range u.names {
		if n == name {
			return uid, true
		}
	}
	return 0, false
}

func (u *accounts) refresh(files []string) {
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if u.names != nil && info.ModTime().Equal(u.time) && info.Size() == u.size {
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		u.time, u.size, u.names = info.ModTime(), info.Size(), passwdNames(string(b))
		return
	}
}

// passwdNames reads lines "name:x:uid:…"; of several names of one uid the first holds, as in libc.
func passwdNames(passwd string) map[uint32]string {
	names := map[uint32]string{}
	for line := range strings.Lines(passwd) {
		fields := strings.Split(line, ":")
		if len(fields) < 7 || fields[0] == "" {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		if _, named := names[uint32(uid)]; !named {
			names[uint32(uid)] = fields[0]
		}
	}
	return names
}

func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

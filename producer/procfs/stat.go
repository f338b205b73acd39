package procfs

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

// Tick is the unit of times in /proc: sysconf(_SC_CLK_TCK) is 100 wherever Linux runs.
const Tick = schema.KTime(10 * time.Millisecond)

// OpenProcess opens the directory of a process in /proc. Its thread tid must have been created at start, so that the
// directory cannot belong to a later process with the same pid. While the directory is open, Linux answers for that
// process alone.
func OpenProcess(pid, tid uint32, start schema.KTime) (*os.Root, error) {
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, err
	}
	stat, err := dir.ReadFile(fmt.Sprintf("task/%d/stat", tid))
	if err == nil && StartTicks(string(stat)) != uint64(start/Tick) {
		err = fmt.Errorf("process %d is another one", pid)
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// Running reports whether any thread of a process still runs. start excludes a later process with the same pid; 0 is
// any. A process that cannot be read counts as running.
func Running(pid uint32, start schema.KTime) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !Ended(err)
	}
	stat := string(b)
	if start != 0 && StartTicks(stat) != uint64(start/Tick) {
		return false
	}
	fields := fieldsAfterName(stat)
	if len(fields) < 18 {
		return true
	}
	dead := fields[0] == "X" || fields[0] == "Z" && fields[17] == "1" // a leader may end before other threads
	return !dead
}

// Ended reports whether an error of reading /proc means that the process ended, and not that gputap lacks a right
// or a file descriptor.
func Ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// ThreadExists reports whether a thread of a process is there.
func ThreadExists(pid, tid uint32) bool {
	return unix.Access(fmt.Sprintf("/proc/%d/task/%d", pid, tid), unix.F_OK) == nil
}

// StartTicks returns field 22 of a stat file: when the task was created, in ticks since boot; 0 when it is missing.
func StartTicks(stat string) uint64 {
	fields := fieldsAfterName(stat)
	if len(fields) < 20 {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

// fieldsAfterName returns the fields of a stat file from the third on. Field 2, the name in brackets, may contain
// spaces and brackets.
func fieldsAfterName(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// StatusField returns the text behind a key of a status file, such as "Uid:"; "" when the key is missing.
func StatusField(status, key string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return rest
		}
	}
	return ""
}

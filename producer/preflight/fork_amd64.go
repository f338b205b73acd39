package preflight

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Implemented in fork_amd64.s, which also calls probed.
func probed() //nolint:unused // it declares the assembly function, which go vet checks
func probedAddress() uint64
func forkConfined(program *unix.SockFprog) (pid int64)

const uretprobe = 335 // number of the system call

// Exit statuses of the child.
const (
	childDone      = 0
	childNoPrctl   = 1
	childNoSeccomp = 2
)

// runConfinedChild forks a child that calls probed under a filter which allows every system call but uretprobe. A
// child of a Go program may not run Go code, so it stays in assembly: it installs the filter, calls probed, and ends.
// The error wraps errKilled when a signal ended it.
func runConfinedChild() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uretprobe, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	status, err := forkBlocked(&program)
	switch {
	case err != nil:
		return fmt.Errorf("run a confined child: %w", err)
	case status.Signaled():
		return fmt.Errorf("%w: %v", errKilled, status.Signal())
	case status.ExitStatus() == childNoPrctl:
		return errors.New("confined child: prctl refused no_new_privs")
	case status.ExitStatus() == childNoSeccomp:
		return errors.New("confined child: seccomp refused the filter")
	case status.ExitStatus() != childDone:
		return fmt.Errorf("confined child: exit status %d", status.ExitStatus())
	}
	return nil
}

// forkBlocked forks while this thread blocks all signals, since the child must not run Go's signal handlers. It waits
// for the child.
func forkBlocked(program *unix.SockFprog) (unix.WaitStatus, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, fmt.Errorf("block signals: %w", err)
	}
	pid := forkConfined(program)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return 0, fmt.Errorf("unblock signals: %w", err)
	}
	runtime.KeepAlive(unsafe.Pointer(program))
	if pid < 0 {
		return 0, fmt.Errorf("fork: %w", unix.Errno(-pid))
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(int(pid), &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}

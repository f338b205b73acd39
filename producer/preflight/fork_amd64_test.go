package preflight

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestForkedChildReportsItsEnd: the parent learns the child's exit status, and a refused filter, and a deadly signal.
func TestForkedChildReportsItsEnd(t *testing.T) {
	if err := runConfinedChild(); err != nil {
		t.Errorf("a child without a probe: %v", err)
	}
	status, err := forkBlocked(&unix.SockFprog{})
	if err != nil || status.ExitStatus() != childNoSeccomp {
		t.Errorf("a child with an empty filter: status %v, %v", status.ExitStatus(), err)
	}
	kill := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS}
	status, err = forkBlocked(&unix.SockFprog{Len: 1, Filter: &kill})
	if err != nil || !status.Signaled() || status.Signal() != unix.SIGSYS {
		t.Errorf("a child whose every call is deadly: status %v, %v", status, err)
	}
}

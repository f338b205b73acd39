package bpf

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
)

// TestExplainNamesTheRemedy expects the remedy in the text of each error of Linux.
func TestExplainNamesTheRemedy(t *testing.T) {
	for err, remedy := range map[error]string{
		os.ErrPermission: "CAP_BPF", &ebpf.VerifierError{Cause: syscall.EPERM}: "CAP_BPF",
		&ebpf.VerifierError{Cause: syscall.EACCES}: "5.15",
		syscall.ENOMEM: "bulk_ring_bytes", syscall.E2BIG: "control_ring_bytes", syscall.EMFILE: "LimitNOFILE",
	} {
		if got := explain(err).Error(); !strings.Contains(got, remedy) {
			t.Errorf("%v becomes %q, which does not name %s", err, got, remedy)
		}
	}
}

func TestRingSize(t *testing.T) {
	page := os.Getpagesize()
	for n, want := range map[int]uint32{0: uint32(page), 1: uint32(page), page +
		1: uint32(2 * page), 8 << 20: 8 << 20, 1 << 40: 1 << 31} {
		if got := ringSize(n); got != want {
			t.Errorf("%d becomes %d, want %d", n, got, want)
		}
	}
}

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
		syscall.ENOMEM: "producer.ring_bytes", syscall.E2BIG: "producer.ring_bytes", syscall.EMFILE: "LimitNOFILE",
	} {
		if got := explain(err).Error(); !strings.Contains(got, remedy) {
			t.Errorf("%v becomes %q, which does not name %s", err, got, remedy)
		}
	}
}

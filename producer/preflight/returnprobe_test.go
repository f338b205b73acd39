//go:build bpf

package preflight

import (
	"os"
	"runtime"
	"testing"
)

// TestConfinedChildHitsTheProbe: the forked child calls the probed function, and this Linux lets it live.
func TestConfinedChildHitsTheProbe(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal("GPUTAP_REQUIRE_BPF is set and this is not root")
		}
		t.Skip("uprobes need root")
	}
	if runtime.GOARCH != "amd64" || !LinuxAtLeast(6, 14) {
		t.Skip("Linux without the system call uretprobe, or without its exemption from seccomp")
	}
	if err := probeConfinedChild(); err != nil {
		t.Error(err)
	}
	if err := ReturnProbes(); err != nil {
		t.Error(err)
	}
}

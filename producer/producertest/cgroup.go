package producertest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gputap/gputap/producer/procfs"
)

// NewCgroup makes a control group of version 2, below one of this test's own, and removes it at the end. It returns its
// path in the hierarchy and its directory.
func NewCgroup(t testing.TB, names ...string) (group, dir string) {
	t.Helper()
	RequireBPF(t)
	mount, err := procfs.Cgroup2Mount()
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	group = "/"
	for _, name := range append([]string{"gputap-test-" + strconv.Itoa(os.Getpid()) + ".service"}, names...) {
		group = filepath.Join(group, name)
		made := filepath.Join(mount, group)
		switch err := os.Mkdir(made, 0o755); {
		case err == nil:
			t.Cleanup(func() { _ = os.Remove(made) })
		case !os.IsExist(err):
			t.Fatal(err)
		}
	}
	return group, filepath.Join(mount, group)
}

package procfs

import (
	"slices"
	"testing"
)

func TestCgroup2Points(t *testing.T) {
	got := cgroup2Points(`31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:7 master:2 - cgroup2 cgroup2 rw
50 31 0:38 /x /mnt/with\040space rw,relatime - cgroup2 none rw
`)
	if want := []string{"/sys/fs/cgroup/unified", "/mnt/with space"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

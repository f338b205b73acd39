package procfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Cgroup2Mount returns the directory of the host's cgroup 2 hierarchy: as process 1 has it mounted, since a container
// may see only its own part, else as gputap itself has it mounted.
func Cgroup2Mount() (string, error) {
	for _, view := range []struct{ mounts, root string }{
		{"/proc/1/mountinfo", HostRoot},
		{"/proc/self/mountinfo", "/"},
	} {
		b, err := os.ReadFile(view.mounts)
		if err != nil {
			continue
		}
		for _, point := range cgroup2Points(string(b)) {
			mount := filepath.Join(view.root, point)
			// A later mount may hide it.
			if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
				return mount, nil
			}
		}
	}
	return "", errors.New("no unified control group hierarchy (cgroup2) is mounted on this host: " +
		"boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup/unified")
}

// cgroup2Points parses the mount points of cgroup2 from a mountinfo file:
// "id parent major:minor root point options [optional…] - type source options".
func cgroup2Points(mountinfo string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) >= 5 && strings.HasPrefix(kind, "cgroup2 ") {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}

// unescape decodes the characters that Linux escapes in a path of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

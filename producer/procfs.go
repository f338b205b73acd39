package producer

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

func readLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return line, err
}

// exePath is the program of a process as the process sees it; "" when it is gone or may not be read.
func exePath(pid uint32) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return path
}

// containerID is the container of a process by its cgroup paths, "" outside containers.
func containerID(pid uint32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return containerIn(string(b))
}

// Docker, containerd, cri-o and podman all put 64 hex digits into the path.
var containerPattern = regexp.MustCompile(`(?:^|[/:.-])([0-9a-f]{64})(?:\.scope)?(?:$|[/\n])`)

func containerIn(cgroups string) string {
	match := containerPattern.FindAllStringSubmatch(cgroups, -1)
	if match == nil {
		return ""
	}
	return match[len(match)-1][1] // the innermost
}

package procfs

import (
	"os"
	"strings"
)

const (
	// HostRoot is the root directory of the host, also inside a container that shares the host's pids.
	HostRoot = "/proc/1/root"

	// hostPIDs is the pid namespace of the host; its number is the same on every Linux.
	hostPIDs = "pid:[4026531836]"
)

// InHostPIDNamespace reports whether /proc lists the pids that BPF records contain.
func InHostPIDNamespace() bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && own == hostPIDs
}

// ReadFile returns the text of a file, "" when it cannot be read.
func ReadFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// ReadLine returns the first line of a file without its newline.
func ReadLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return line, err
}

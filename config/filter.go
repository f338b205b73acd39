package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Filter selects the processes that are watched. A process must match one entry of every list that is not empty. Other
// processes cost little and leave no trace.
type Filter struct {
	Comm      []string `koanf:"comm" flag:"filter.comm"`
	PID       []string `koanf:"pid" flag:"filter.pid"`
	UID       []string `koanf:"uid" flag:"filter.uid"`
	Container []string `koanf:"container" flag:"filter.container"`
	Cgroup    []string `koanf:"cgroup" flag:"filter.cgroup"`
}

const (
	maxFilters = 1024
	maxPID     = 1 << 22 // the limit of Linux
)

var (
	userPattern      = regexp.MustCompile(`^[^\s:,/]+$`)
	containerPattern = regexp.MustCompile(
		`^(?:[0-9a-fA-F]{12,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)
)

// Validate names the first key with a wrong value.
func (f Filter) Validate() error {
	for _, kind := range f.kinds() {
		if len(kind.entries) > maxFilters {
			return fmt.Errorf("producer.filter.%s: %d entries are too many; use at most %d", kind.name,
				len(kind.entries), maxFilters)
		}
		for _, entry := range kind.entries {
			if remedy := kind.wrong(entry); remedy != "" {
				return fmt.Errorf("producer.filter.%s: %q is not valid; use %s", kind.name, entry, remedy)
			}
		}
	}
	return nil
}

// String formats the filter for logs: comm=python3,train uid=1000; "" when every process passes.
func (f Filter) String() string {
	var active []string
	for _, kind := range f.kinds() {
		if len(kind.entries) > 0 {
			active = append(active, kind.name+"="+strings.Join(kind.entries, ","))
		}
	}
	return strings.Join(active, " ")
}

// filterKind is one list. wrong returns the remedy for an entry that is not valid, else "".
type filterKind struct {
	name    string
	entries []string
	wrong   func(entry string) string
}

func (f Filter) kinds() []filterKind {
	return []filterKind{
		{"comm", f.Comm, func(entry string) string {
			return unless(entry != "", "the name of a process")
		}},
		{"pid", f.PID, func(entry string) string {
			n, err := strconv.ParseUint(entry, 10, 32)
			return unless(err == nil && n > 0 && n <= maxPID, "the pid of a running process")
		}},
		{"uid", f.UID, func(entry string) string {
			return unless(userPattern.MatchString(entry), "a number or the name of a user")
		}},
		{"container", f.Container, func(entry string) string {
			return unless(containerPattern.MatchString(entry),
				"the 64 digits of a container, 12 or more of its first digits, or the UID of a pod")
		}},
		{"cgroup", f.Cgroup, func(entry string) string {
			path := strings.HasPrefix(entry, "/") && !strings.Contains(entry+"/", "/../")
			name := entry != "" && entry != "." && entry != ".." && !strings.Contains(entry, "/")
			return unless(path || name,
				"an absolute path in the hierarchy such as /system.slice/ollama.service, or the name of one directory")
		}},
	}
}

func unless(right bool, remedy string) string {
	if right {
		return ""
	}
	return remedy
}

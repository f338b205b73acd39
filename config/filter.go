package config

import (
	"fmt"
	"regexp"
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

const maxFilters = 1024

var (
	pidPattern       = regexp.MustCompile(`^[1-9][0-9]{0,6}$`)
	userPattern      = regexp.MustCompile(`^[^\s:,/]+$`)
	containerPattern = regexp.MustCompile(
		`^(?:[0-9a-fA-F]{12,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)
)

func (f Filter) Validate() error {
	for _, kind := range f.kinds() {
		if len(kind.entries) > maxFilters {
			return fmt.Errorf("producer.filter.%s: %d entries are too many; use at most %d", kind.name,
				len(kind.entries), maxFilters)
		}
		for _, entry := range kind.entries {
			if !kind.valid(entry) {
				return fmt.Errorf("producer.filter.%s: %q is not valid; use %s", kind.name, entry, kind.remedy)
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

type filterKind struct {
	name    string
	entries []string
	valid   func(entry string) bool
	remedy  string // for an entry that is not valid
}

func (f Filter) kinds() []filterKind {
	return []filterKind{
		// Linux compares whole names. A pattern would match nothing.
		{"comm", f.Comm, func(entry string) bool { return entry != "" && !strings.ContainsAny(entry, "*?") },
			"the whole name of a process, not a pattern"},
		{"pid", f.PID, pidPattern.MatchString, "the pid of a running process"},
		{"uid", f.UID, userPattern.MatchString, "a number or the name of a user"},
		{"container", f.Container, containerPattern.MatchString,
			"the 64 digits of a container, 12 or more of its first digits, or the UID of a pod"},
		{"cgroup", f.Cgroup, validCgroup,
			"an absolute path in the hierarchy such as /system.slice/ollama.service, or the name of one directory"},
	}
}

func validCgroup(entry string) bool {
	if strings.HasPrefix(entry, "/") {
		return !strings.Contains(entry+"/", "/../")
	}
	return entry != "" && entry != "." && entry != ".." && !strings.Contains(entry, "/")
}

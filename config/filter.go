package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Filter chooses the processes that are watched: of every list that is not empty one entry must fit. What
// does not pass costs little and leaves no trace.
type Filter struct {
	Comm      []string `koanf:"comm" flag:"filter.comm" doc:"watch only processes of these names, as ps -o comm prints them; of several kinds of filter all must fit"`
	PID       []string `koanf:"pid" flag:"filter.pid" doc:"watch only these running processes"`
	UID       []string `koanf:"uid" flag:"filter.uid" doc:"watch only processes of these users: number or name"`
	Container []string `koanf:"container" flag:"filter.container" doc:"watch only these containers: id, 12 or more of its first digits, or the UID of a pod; they may start later"`
	Cgroup    []string `koanf:"cgroup" flag:"filter.cgroup" doc:"watch only these control groups and those inside: a path from the root of the cgroup 2 hierarchy, or the name of a directory; they may be made later"`
}

const (
	maxFilters = 1024
	maxPID     = 1 << 22 // Linux's own limit
)

var (
	userPattern      = regexp.MustCompile(`^[^\s:,/]+$`)
	containerPattern = regexp.MustCompile(`^(?:[0-9a-fA-F]{12,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)
)

// Validate names the first key whose value makes no sense.
func (f Filter) Validate() error {
	for _, kind := range f.kinds() {
		if len(kind.entries) > maxFilters {
			return fmt.Errorf("filter.%s: %d entries: use at most %d", kind.name, len(kind.entries), maxFilters)
		}
		for _, entry := range kind.entries {
			if remedy := kind.wrong(entry); remedy != "" {
				return fmt.Errorf("filter.%s: %q: use %s", kind.name, entry, remedy)
			}
		}
	}
	return nil
}

// String is the filter as it is logged: comm=python3,train uid=1000; "" when everything passes.
func (f Filter) String() string {
	var active []string
	for _, kind := range f.kinds() {
		if len(kind.entries) > 0 {
			active = append(active, kind.name+"="+strings.Join(kind.entries, ","))
		}
	}
	return strings.Join(active, " ")
}

// filterKind is one list and what it takes: wrong is the remedy for an entry that it does not.
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
			return unless(err == nil && n > 0 && n <= maxPID, "the number of a running process")
		}},
		{"uid", f.UID, func(entry string) string {
			return unless(userPattern.MatchString(entry), "a number or the name of a user")
		}},
		{"container", f.Container, func(entry string) string {
			return unless(containerPattern.MatchString(entry), "a container's 64 digits, 12 or more of the first, or the UID of a pod")
		}},
		{"cgroup", f.Cgroup, func(entry string) string {
			path := strings.HasPrefix(entry, "/") && !strings.Contains(entry+"/", "/../")
			name := entry != "" && entry != "." && entry != ".." && !strings.Contains(entry, "/")
			return unless(path || name, "a path from the root of the hierarchy, as /system.slice/ollama.service, or one directory's name")
		}},
	}
}

func unless(right bool, remedy string) string {
	if right {
		return ""
	}
	return remedy
}

package producer

import (
	"path"
	"regexp"
	"strings"
)

// cgroup is the control group that tells most of a process.
type cgroup struct{ path string }

// cgroupOrder is the order in which the hierarchies of /proc/PID/cgroup are asked: version 2, then those
// of version 1 that container runtimes and systemd always set.
var cgroupOrder = []string{"", "name=systemd", "memory", "pids", "cpu"}

// cgroupIn picks from a process's cgroup file the first hierarchy, in cgroupOrder, whose path names a
// container; without one the first that is not the root.
func cgroupIn(file string, above cgroupDepths) cgroup {
	paths := make([]string, len(cgroupOrder)+1) // the last for all other hierarchies
	for line := range strings.Lines(file) {
		controllers, path, ok := cgroupLine(line)
		if !ok {
			continue
		}
		i := cgroupRank(controllers)
		if path = above.absolute(controllers, path); len(path) > len(paths[i]) {
			paths[i] = path
		}
	}
	best := cgroup{}
	for _, path := range paths {
		c := cgroup{path}
		switch {
		case path == "":
		case c.container() != "":
			return c
		case best.path == "", best.path == "/":
			best = c
		}
	}
	return best
}

// cgroupLine splits "hierarchy:controllers:path".
func cgroupLine(line string) (controllers, path string, ok bool) {
	_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
	controllers, path, ok = strings.Cut(rest, ":")
	return controllers, strings.TrimSuffix(path, " (deleted)"), ok && strings.HasPrefix(path, "/")
}

func cgroupRank(controllers string) int {
	for i, name := range cgroupOrder {
		for c := range strings.SplitSeq(controllers, ",") {
			if c == name {
				return i
			}
		}
	}
	return len(cgroupOrder)
}

// cgroupDepths is how far below the root of each hierarchy the cgroup namespace of gputap begins, as in a
// container of its own. Paths outside then begin with as many "/.." as lead to what both share.
type cgroupDepths map[string]int

// depthsOf takes the depths from the cgroup file of process 1 of the host, which is in no container.
func depthsOf(first string) cgroupDepths {
	depths := cgroupDepths{}
	for line := range strings.Lines(first) {
		if controllers, path, ok := cgroupLine(line); ok {
			depths[controllers], _ = climb(path)
		}
	}
	return depths
}

// absolute is a path from the hierarchy's root. One that shares a part with gputap's own stays relative,
// since the names of that part are not to be seen.
func (d cgroupDepths) absolute(controllers, path string) string {
	if n, rest := climb(path); n > 0 && n == d[controllers] {
		return rest
	}
	return path
}

func climb(path string) (n int, rest string) {
	for rest = path; rest == "/.." || strings.HasPrefix(rest, "/../"); n++ {
		rest = rest[len("/.."):]
	}
	if rest == "" {
		rest = "/"
	}
	return n, rest
}

var (
	// Docker, containerd, nerdctl, cri-o and podman all name a container's group by 64 hex digits, mostly
	// behind the name of the runtime, as in cri-containerd-….scope.
	containerPattern = regexp.MustCompile(`^(?:.*[:.-])?([0-9a-f]{64})(?:\.scope)?$`)
	// The group of a container's monitor bears the container's id too.
	monitorPattern = regexp.MustCompile(`(?:^|-)conmon-`)
	// kubelet writes pod… below kubepods, or with systemd …-pod….slice and underscores. Pods of files on the
	// host have an id without dashes.
	podPattern = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:$|:)`)
)

const (
	containerDigits = 64

	lxcDir    = "lxc"
	lxcPrefix = "lxc.payload."
)

func isContainerID(name string) bool { return len(name) == containerDigits }

// container is the id of the innermost container around the group, of LXC its name; "" outside.
func (c cgroup) container() string { return c.innermost(containerOf) }

// pod is the UID of the Kubernetes pod around the group; "" outside.
func (c cgroup) pod() string { return c.innermost(podOf) }

// unit is the systemd unit of the group: the innermost service, else the innermost scope; scopes of
// containers are none.
func (c cgroup) unit() string {
	unit := func(suffix string) string {
		return c.innermost(func(dir string) string {
			if name := path.Base(dir); strings.HasSuffix(name, suffix) && containerOf(dir) == "" {
				return name
			}
			return ""
		})
	}
	if service := unit(".service"); service != "" {
		return service
	}
	return unit(".scope")
}

// innermost asks the group and those around it, from the inside, until one has an answer.
func (c cgroup) innermost(of func(dir string) string) string {
	for dir := c.path; len(dir) > 1; dir = path.Dir(dir) {
		if answer := of(dir); answer != "" {
			return answer
		}
	}
	return ""
}

// containerOf is the container whose group this is itself.
func containerOf(dir string) string {
	name := path.Base(dir)
	if match := containerPattern.FindStringSubmatch(name); match != nil && !monitorPattern.MatchString(name) {
		return match[1]
	}
	if lxc, ok := strings.CutPrefix(name, lxcPrefix); ok {
		return lxc
	}
	if path.Base(path.Dir(dir)) == lxcDir {
		return name
	}
	return ""
}

// podOf is the pod whose group this is itself.
func podOf(dir string) string {
	if match := podPattern.FindStringSubmatch(path.Base(dir)); match != nil {
		return strings.ReplaceAll(match[1], "_", "-")
	}
	return ""
}

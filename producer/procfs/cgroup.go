package procfs

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Cgroup is the control group that identifies a process best: its path in the hierarchy, "" when unknown.
type Cgroup struct{ Path string }

// hierarchyOrder is the order in which the hierarchies of /proc/PID/cgroup are tried: version 2, then those of
// version 1 that container runtimes and systemd always set.
var hierarchyOrder = []string{"", "name=systemd", "memory", "pids", "cpu"}

// CgroupOf picks a control group from the text of /proc/PID/cgroup: the first hierarchy, in hierarchyOrder, whose
// path names a container. Without a container it picks the first path that is not the root.
func CgroupOf(file string, depths CgroupDepths) Cgroup {
	paths := make([]string, len(hierarchyOrder)+1) // the last for all other hierarchies
	for line := range strings.Lines(file) {
		controllers, path, ok := cgroupLine(line)
		if !ok {
			continue
		}
		i := hierarchyRank(controllers)
		if path = depths.absolute(controllers, path); len(path) > len(paths[i]) {
			paths[i] = path
		}
	}
	best := Cgroup{}
	for _, path := range paths {
		c := Cgroup{path}
		switch {
		case path == "":
		case c.Container() != "":
			return c
		case best.Path == "", best.Path == "/":
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

func hierarchyRank(controllers string) int {
	list := strings.Split(controllers, ",")
	rank := slices.IndexFunc(hierarchyOrder, func(name string) bool { return slices.Contains(list, name) })
	if rank < 0 {
		return len(hierarchyOrder)
	}
	return rank
}

// CgroupDepths maps each hierarchy to the depth at which gputap's cgroup namespace begins, as in a container. Linux
// writes the path of a group outside the namespace with that many leading "/..".
type CgroupDepths map[string]int

// DepthsOf takes the depths from the cgroup file of the host's process 1, which is in no container.
func DepthsOf(first string) CgroupDepths {
	depths := CgroupDepths{}
	for line := range strings.Lines(first) {
		if controllers, path, ok := cgroupLine(line); ok {
			depths[controllers], _ = trimParents(path)
		}
	}
	return depths
}

// absolute returns a path from the root of the hierarchy. A path that shares a part with gputap's own group stays
// relative, since the namespace hides the names of that part.
func (d CgroupDepths) absolute(controllers, path string) string {
	if n, rest := trimParents(path); n > 0 && n == d[controllers] {
		return rest
	}
	return path
}

// trimParents counts and removes leading "/..".
func trimParents(path string) (n int, rest string) {
	for rest = path; rest == "/.." || strings.HasPrefix(rest, "/../"); n++ {
		rest = rest[len("/.."):]
	}
	if rest == "" {
		rest = "/"
	}
	return n, rest
}

var (
	// Docker, containerd, nerdctl, cri-o and podman name a container's group by 64 hex digits, mostly after the name
	// of the runtime, as in cri-containerd-….scope.
	containerPattern = regexp.MustCompile(`^(?:.*[:.-])?([0-9a-f]{64})(?:\.scope)?$`)
	// The group of a container's monitor also has the container's id.
	monitorPattern = regexp.MustCompile(`(?:^|-)conmon-`)
	// kubelet writes pod… below kubepods; with systemd it writes …-pod….slice and underscores. Static pods have
	// an id without dashes.
	podPattern = regexp.MustCompile(
		`(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:$|:)`)
)

// IsContainerID tells a runtime's container id from the name of an LXC container.
func IsContainerID(name string) bool { return len(name) == 64 }

// Container returns the id of the innermost container around the group; of LXC its name. "" outside of containers.
func (c Cgroup) Container() string { return c.innermost(ContainerOf) }

// Pod returns the UID of the Kubernetes pod around the group; "" outside of pods.
func (c Cgroup) Pod() string { return c.innermost(PodOf) }

// Unit returns the systemd unit of the group: the innermost service, else the innermost scope that is no container.
func (c Cgroup) Unit() string {
	unit := func(suffix string) string {
		return c.innermost(func(dir string) string {
			if name := path.Base(dir); strings.HasSuffix(name, suffix) && ContainerOf(dir) == "" {
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

// innermost calls of for the group and then for its parents, until one returns a name.
func (c Cgroup) innermost(of func(dir string) string) string {
	for dir := c.Path; len(dir) > 1; dir = path.Dir(dir) {
		if name := of(dir); name != "" {
			return name
		}
	}
	return ""
}

// ContainerOf returns the container whose own group a directory is; "" for any other directory.
func ContainerOf(dir string) string {
	name := path.Base(dir)
	if match := containerPattern.FindStringSubmatch(name); match != nil && !monitorPattern.MatchString(name) {
		return match[1]
	}
	if lxc, ok := strings.CutPrefix(name, "lxc.payload."); ok {
		return lxc
	}
	if path.Base(path.Dir(dir)) == "lxc" {
		return name
	}
	return ""
}

// PodOf returns the UID of the pod whose own group a directory is; "" for any other directory.
func PodOf(dir string) string {
	if match := podPattern.FindStringSubmatch(path.Base(dir)); match != nil {
		return strings.ReplaceAll(match[1], "_", "-")
	}
	return ""
}

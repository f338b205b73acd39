package producer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
)

// cgroupTree follows the control groups of the host while processes are chosen by them: which groups meet
// the filter Linux knows by their ids alone. New ones are told by Linux as they are made, before a process
// is in them; a look at the whole tree now and then finds what could not be told and drops what is gone.
// Only groups whose own directory meets the filter are noted: Linux looks for them around a thread's group.
type cgroupTree struct {
	mount      string
	paths      map[string]bool // in the hierarchy
	names      map[string]bool // of directories
	containers []string        // first digits of ids, and UIDs of pods
	tap        *bpf.Tap
	watch      *bpf.CgroupWatch // nil where Linux does not tell
	log        *slog.Logger

	deaf      bool              // Linux does not tell, or no longer
	noted     map[uint64]int    // by id: looks at the tree that did not find it
	ids       map[string]string // by entry of containers: the container it stands for
	ambiguous error             // an entry that stands for two
	said      map[string]bool   // warnings
}

const (
	relook     = 10 * time.Second
	relookDeaf = time.Second
)

// newCgroupTree has noted all present groups when it returns, and is told of later ones; run must follow.
// It is nil when no process is chosen by its group.
func newCgroupTree(cfg config.Filter, tap *bpf.Tap, log *slog.Logger) (*cgroupTree, error) {
	if len(cfg.Cgroup)+len(cfg.Container) == 0 {
		return nil, nil
	}
	mount, err := cgroup2Mount()
	if err != nil {
		return nil, fmt.Errorf("filter.container and filter.cgroup: %w", err)
	}
	t := &cgroupTree{
		mount: mount, tap: tap, log: log, paths: map[string]bool{}, names: map[string]bool{}, noted: map[uint64]int{},
		ids: map[string]string{}, said: map[string]bool{},
	}
	t.want(cfg)
	if t.watch, err = bpf.WatchCgroups(); err != nil {
		t.deaf = true
		log.Warn("Linux does not tell of new control groups: looking for them each second instead", "err", err)
	}
	err = t.look()
	if err == nil && t.ambiguous != nil {
		err = t.ambiguous
	}
	if err != nil {
		t.close()
		return nil, err
	}
	if len(t.noted) == 0 {
		log.Warn("no control group of version 2 meets the filter yet: waiting for one", "filter", cfg.String())
	}
	return t, nil
}

// want takes the filter apart. A path may be given with the mount point in front.
func (t *cgroupTree) want(cfg config.Filter) {
	seen := strings.TrimPrefix(t.mount, hostRoot)
	for _, entry := range cfg.Cgroup {
		if !strings.HasPrefix(entry, "/") {
			t.names[entry] = true
			continue
		}
		group := path.Clean(entry)
		if rest, ok := strings.CutPrefix(group+"/", seen+"/"); ok {
			group = path.Clean("/" + rest)
		}
		t.paths[group] = true
	}
	for _, entry := range cfg.Container {
		t.containers = append(t.containers, strings.ToLower(entry))
	}
}

func (t *cgroupTree) close() {
	if t != nil && t.watch != nil {
		t.watch.Close()
	}
}

// run follows the tree until ctx ends; a nil tree has nothing to follow.
func (t *cgroupTree) run(ctx context.Context) {
	if t == nil {
		return
	}
	stop := context.AfterFunc(ctx, t.close)
	defer stop()
	for ctx.Err() == nil {
		t.step(ctx)
	}
}

// step hears of new groups until the next look at the tree is due, and looks.
func (t *cgroupTree) step(ctx context.Context) {
	for due := time.Now().Add(relook); !t.deaf; {
		id, group, err := t.watch.Next(due)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.deaf = true
			t.warn("Linux no longer tells of new control groups: looking for them each second instead", err)
			break
		}
		t.note(id, group)
	}
	if t.deaf {
		select {
		case <-ctx.Done():
			return
		case <-time.After(relookDeaf):
		}
	}
	if err := t.look(); err != nil {
		t.warn("control groups not read", err)
	}
	if t.ambiguous != nil {
		t.warn("control group passed over", t.ambiguous)
	}
}

// look reads the whole tree. A group that was told an instant ago may not be visible yet, so only what two
// looks have not found is gone.
func (t *cgroupTree) look() error {
	err := filepath.WalkDir(t.mount, func(dir string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && dir == t.mount:
			return err
		case err != nil || !entry.IsDir(): // a group that went away meanwhile, or a file
			return nil
		}
		group := path.Clean("/" + strings.TrimPrefix(dir, t.mount))
		if t.conditions(group) == 0 {
			return nil
		}
		if id, err := inodeAt(dir); err == nil {
			t.note(id.ino, group)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the control groups: %w", err)
	}
	for id, absent := range t.noted {
		t.noted[id]++
		if absent < 2 {
			continue
		}
		delete(t.noted, id)
		if err := t.tap.ForgetCgroup(id); err != nil {
			return err
		}
	}
	return nil
}

// note tells Linux of a group when it meets the filter.
func (t *cgroupTree) note(id uint64, group string) {
	conditions := t.conditions(group)
	if conditions == 0 {
		return
	}
	if _, known := t.noted[id]; !known {
		if err := t.tap.MeetCgroup(id, conditions); err != nil {
			t.warn("control group not followed", err)
			return
		}
		t.log.Debug("control group meets the filter", "cgroup", group)
	}
	t.noted[id] = 0
}

// conditions are those that the directory of a group meets itself.
func (t *cgroupTree) conditions(group string) (met uint8) {
	if t.paths[group] || t.names[path.Base(group)] {
		met |= bpf.FilterCgroup
	}
	if len(t.containers) == 0 {
		return met
	}
	container, pod := containerOf(group), podOf(group)
	for _, entry := range t.containers {
		switch {
		case pod != "" && pod == entry, isContainerID(container) && strings.HasPrefix(container, entry) && t.only(entry, container):
			met |= bpf.FilterContainer
		}
	}
	return met
}

// only reports whether an entry stands for no other container.
func (t *cgroupTree) only(entry, container string) bool {
	first, known := t.ids[entry]
	if known && first != container {
		t.ambiguous = fmt.Errorf("filter.container: %s begins the ids of two containers, %s and %s: use more digits", entry, first, container)
		return false
	}
	t.ids[entry] = container
	return true
}

// warn says the same only once.
func (t *cgroupTree) warn(what string, err error) {
	if !t.said[what] {
		t.said[what] = true
		t.log.Warn(what, "err", err)
	}
}

// hostRoot is the root directory of the host also inside a container that shares the host's pids.
const hostRoot = "/proc/1/root"

var errNoCgroup2 = errors.New("no unified control group hierarchy (cgroup2) is mounted on this host: " +
	"boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup/unified")

// cgroup2Mount is where the host's cgroup 2 hierarchy can be read: as process 1 has it mounted, since a
// container may see no more than its own part; else as gputap itself has it.
func cgroup2Mount() (string, error) {
	for _, place := range []struct{ mounts, root string }{{"/proc/1/mountinfo", hostRoot}, {"/proc/self/mountinfo", "/"}} {
		b, err := os.ReadFile(place.mounts)
		if err != nil {
			continue
		}
		for _, point := range cgroup2Points(string(b)) {
			mount := filepath.Join(place.root, point)
			if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil { // not hidden by a later mount
				return mount, nil
			}
		}
	}
	return "", errNoCgroup2
}

// cgroup2Points are the mount points of cgroup2 in a mountinfo file:
// "id parent major:minor root point options [optional…] - type source options".
func cgroup2Points(mountinfo string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) >= 5 && strings.HasPrefix(kind, "cgroup2 ") {
			points = append(points, unescaped(fields[4]))
		}
	}
	return points
}

// unescaped undoes the octal escapes of mountinfo: a space is \040.
func unescaped(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/procfs"
)

// CgroupTree keeps the list of control groups that pass the filter; Linux knows them by id alone. It adds only groups
// whose own directory passes: Linux itself walks up from a thread's group.
type CgroupTree struct {
	mount      string
	groups     map[string]bool // paths in the hierarchy, and names of directories
	containers []string        // leading digits of container ids, and UIDs of pods
	tap        *bpf.Tap
	watch      *bpf.CgroupWatch // nil where Linux does not report new groups
	log        *slog.Logger

	polling   bool              // Linux does not report new groups
	added     map[uint64]int    // by id: how many walks in a row did not find the group
	ids       map[string]string // by entry of containers: the container id that it matched first
	ambiguous error             // an entry matches two containers
	warned    map[string]bool   // by message
}

const (
	walkInterval = 10 * time.Second
	pollInterval = time.Second // while Linux does not report new groups
)

// NewCgroupTree adds all present groups that pass and starts to listen for new ones; Run must follow. It returns nil
// when the filter has no control groups.
func NewCgroupTree(cfg config.Filter, tap *bpf.Tap, log *slog.Logger) (*CgroupTree, error) {
	if len(cfg.Cgroup)+len(cfg.Container) == 0 {
		return nil, nil
	}
	mount, err := procfs.Cgroup2Mount()
	if err != nil {
		return nil, fmt.Errorf("filter.container and filter.cgroup: %w", err)
	}
	t := &CgroupTree{
		mount: mount, tap: tap, log: log, groups: map[string]bool{}, added: map[uint64]int{}, ids: map[string]string{},
		warned: map[string]bool{},
	}
	t.parse(cfg)
	if t.watch, err = bpf.WatchCgroups(); err != nil {
		t.polling = true
		log.Warn("Linux does not report new control groups; reading the tree every second instead", "err", err)
	}
	if err = t.walk(); err == nil {
		err = t.ambiguous
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	if len(t.added) == 0 {
		log.Warn("no control group of version 2 passes the filter yet", "filter", cfg.String())
	}
	return t, nil
}

// parse sorts the entries of the filter. A path may include the mount point.
func (t *CgroupTree) parse(cfg config.Filter) {
	mount := strings.TrimPrefix(t.mount, procfs.HostRoot)
	for _, entry := range cfg.Cgroup {
		group := path.Clean(entry)
		if rest, ok := strings.CutPrefix(group+"/", mount+"/"); ok {
			group = path.Clean("/" + rest)
		}
		t.groups[group] = true
	}
	for _, entry := range cfg.Container {
		t.containers = append(t.containers, strings.ToLower(entry))
	}
}

// Close ends Run; a nil tree may be closed.
func (t *CgroupTree) Close() {
	if t != nil && t.watch != nil {
		t.watch.Close()
	}
}

// Run follows the tree until ctx ends. A nil tree returns at once.
func (t *CgroupTree) Run(ctx context.Context) {
	if t == nil {
		return
	}
	stop := context.AfterFunc(ctx, t.Close)
	defer stop()
	for ctx.Err() == nil {
		t.step(ctx)
	}
}

// step receives new groups until the next walk of the tree is due, and walks.
func (t *CgroupTree) step(ctx context.Context) {
	for due := time.Now().Add(walkInterval); !t.polling; {
		id, group, err := t.watch.Next(due)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.polling = true
			t.warnOnce("Linux stopped reporting new control groups; reading the tree every second instead", err)
			break
		}
		t.add(id, group)
	}
	if t.polling {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
		}
	}
	if err := t.walk(); err != nil {
		t.warnOnce("cannot read control groups", err)
	}
	if t.ambiguous != nil {
		t.warnOnce("control group ignored", t.ambiguous)
	}
}

// walk reads the whole tree. The directory of a group that Linux reported a moment ago may not be visible yet, so a
// group is removed after two walks did not find it.
func (t *CgroupTree) walk() error {
	err := filepath.WalkDir(t.mount, func(dir string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && dir == t.mount:
			return err
		case err != nil || !entry.IsDir(): // a group that was just removed, or a file
			return nil
		}
		group := path.Clean("/" + strings.TrimPrefix(dir, t.mount))
		if t.conditions(group) == 0 {
			return nil
		}
		var stat syscall.Stat_t
		if syscall.Stat(dir, &stat) == nil {
			t.add(stat.Ino, group) // a group's id is the inode of its directory
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the control groups: %w", err)
	}
	for id, absent := range t.added {
		t.added[id]++
		if absent < 2 {
			continue
		}
		delete(t.added, id)
		if err := t.tap.ForgetCgroup(id); err != nil {
			return err
		}
	}
	return nil
}

// add hands a group that passes to Linux.
func (t *CgroupTree) add(id uint64, group string) {
	conditions := t.conditions(group)
	if conditions == 0 {
		return
	}
	if _, known := t.added[id]; !known {
		if err := t.tap.MeetCgroup(id, conditions); err != nil {
			t.warnOnce("cannot add control group to the filter", err)
			return
		}
		t.log.Debug("control group passes the filter", "cgroup", group)
	}
	t.added[id] = 0
}

// conditions returns the conditions of the filter that the directory of a group meets itself.
func (t *CgroupTree) conditions(group string) (met uint8) {
	if t.groups[group] || t.groups[path.Base(group)] {
		met |= bpf.FilterCgroup
	}
	if len(t.containers) == 0 {
		return met
	}
	container, pod := procfs.ContainerOf(group), procfs.PodOf(group)
	for _, entry := range t.containers {
		ofContainer := procfs.IsContainerID(container) && strings.HasPrefix(container, entry)
		if pod != "" && pod == entry || ofContainer && t.unambiguous(entry, container) {
			met |= bpf.FilterContainer
		}
	}
	return met
}

// unambiguous reports whether an entry has matched no other container.
func (t *CgroupTree) unambiguous(entry, container string) bool {
	first, known := t.ids[entry]
	if known && first != container {
		t.ambiguous = fmt.Errorf("filter.container: %s matches two containers, %s and %s: use more digits",
			entry, first, container)
		return false
	}
	t.ids[entry] = container
	return true
}

func (t *CgroupTree) warnOnce(message string, err error) {
	if !t.warned[message] {
		t.warned[message] = true
		t.log.Warn(message, "err", err)
	}
}

package attach

import (
	"maps"
	"slices"

	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/schema"
)

// use is a library that a process has mapped.
type use struct {
	inode library.Inode
	torch bool         // it is PyTorch's
	at    schema.KTime // the process made no call before
	noted schema.KTime // when a scan found it; 0: a record reported the exact time
}

// users knows which process has which library mapped: to tell late processes, and to detach unused libraries.
type users struct {
	began   schema.KTime                // older processes ran before the first probe
	files   map[library.Inode]*attached // by inode as maps and side-band records show it
	byPID   map[uint32][]use
	older   map[uint32]bool         // images that ran before began
	leaving map[uint32]schema.KTime // when their leader ended; other threads may still run
}

func newUsers(began schema.KTime) users {
	return users{
		began: began, files: map[library.Inode]*attached{}, byPID: map[uint32][]use{}, older: map[uint32]bool{},
		leaving: map[uint32]schema.KTime{},
	}
}

// add notes that a process has a library mapped, and reports whether that is new.
func (u *users) add(pid uint32, seen use) bool {
	list := u.byPID[pid]
	for i := range list {
		if list[i].inode != seen.inode {
			continue
		}
		if known := &list[i]; seen.noted == 0 && known.at < seen.at && seen.at <= known.noted {
			*known = seen // a scan found this same mapping
			return true
		}
		return false
	}
	u.byPID[pid] = append(list, seen)
	return true
}

// late reports whether a process had a driver library mapped before its probes were attached. PyTorch's library does
// not count: the allocator's totals show whether there were blocks before.
func (u *users) late(pid uint32, start schema.KTime) bool {
	if start < u.began && u.older[pid] {
		return true
	}
	return slices.ContainsFunc(u.byPID[pid], func(s use) bool {
		l := u.files[s.inode]
		return !s.torch && (l == nil || l.attachment == nil || l.since > s.at)
	})
}

// exec removes all earlier mappings of a process.
func (u *users) exec(pid uint32, at schema.KTime) {
	delete(u.older, pid)
	delete(u.leaving, pid) // another thread did the exec and became the leader
	u.keep(pid, func(s use) bool { return s.at > at })
}

// fork copies the mappings of a parent to a new process.
func (u *users) fork(pid, parent uint32, at schema.KTime) {
	for _, s := range u.byPID[parent] {
		u.add(pid, use{inode: s.inode, torch: s.torch, at: at})
	}
}

// exit notes that a leader ended. Its mappings are removed later, when its first call has certainly been read.
func (u *users) exit(pid uint32, at schema.KTime) {
	if u.older[pid] || u.byPID[pid] != nil {
		u.leaving[pid] = at
	}
}

// replace removes mappings that a scan, begun at since, did not find. Later ones stay.
func (u *users) replace(pid uint32, found []library.Mapping, since schema.KTime) {
	u.keep(pid, func(s use) bool {
		return s.at > since || slices.ContainsFunc(found, func(m library.Mapping) bool { return m.Inode == s.inode })
	})
}

func (u *users) keep(pid uint32, wanted func(use) bool) {
	list := slices.DeleteFunc(u.byPID[pid], func(s use) bool { return !wanted(s) })
	if u.byPID[pid] = list; len(list) == 0 {
		delete(u.byPID, pid)
	}
}

// olderUsers lists the processes older than the first probe that may make calls, sorted; never nil.
func (u *users) olderUsers(running map[uint32]*library.Process) []uint64 {
	list := []uint64{}
	for pid := range u.older {
		calls := slices.ContainsFunc(u.byPID[pid], func(s use) bool { return !s.torch })
		if calls || running[pid].Unreadable {
			list = append(list, uint64(pid))
		}
	}
	slices.Sort(list)
	return list
}

// used returns the libraries that some process has mapped. It removes inodes that nobody has mapped, except that of the
// library file itself.
func (u *users) used() map[*attached]bool {
	mapped := map[library.Inode]bool{}
	for _, list := range u.byPID {
		for _, s := range list {
			mapped[s.inode] = true
		}
	}
	used := map[*attached]bool{}
	for id, l := range u.files {
		if mapped[id] {
			used[l] = true
		} else if id != l.shown {
			delete(u.files, id)
		}
	}
	return used
}

// remove removes a library under all its inodes.
func (u *users) remove(gone *attached) {
	maps.DeleteFunc(u.files, func(_ library.Inode, l *attached) bool { return l == gone })
}

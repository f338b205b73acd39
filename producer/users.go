package producer

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// use is a driver library that a process has mapped.
type use struct {
	inode inode
	at    schema.KTime // no call was made before
	noted schema.KTime // when a scan saw it; 0: a record told the very time
}

// users is who has which library mapped: for being late, and for detaching what nobody needs.
type users struct {
	began   schema.KTime            // processes older than this ran before the first probe
	files   map[inode]*library      // inodes as maps and side-band records write them
	byPID   map[uint32][]use        //
	older   map[uint32]bool         // images that ran before began
	leaving map[uint32]schema.KTime // when their leader ended; other threads may go on
}

func newUsers(began schema.KTime) users {
	return users{
		began: began, files: map[inode]*library{}, byPID: map[uint32][]use{}, older: map[uint32]bool{},
		leaving: map[uint32]schema.KTime{},
	}
}

// maps notes that a process has mapped a library, and reports whether that is news.
func (u *users) maps(pid uint32, seen use) bool {
	list := u.byPID[pid]
	for i := range list {
		if list[i].inode != seen.inode {
			continue
		}
		if known := &list[i]; seen.noted == 0 && known.at < seen.at && seen.at <= known.noted {
			*known = seen // this is what the scan saw
			return true
		}
		return false
	}
	u.byPID[pid] = append(list, seen)
	return true
}

// late reports whether a process had a library mapped before its probes were in place.
func (u *users) late(pid uint32, start schema.KTime) bool {
	if start < u.began && u.older[pid] {
		return true
	}
	return slices.ContainsFunc(u.byPID[pid], func(s use) bool {
		l := u.files[s.inode]
		return l == nil || l.attachment == nil || l.attached > s.at
	})
}

// exec notes that a process has none of its mappings any more.
func (u *users) exec(pid uint32, at schema.KTime) {
	delete(u.older, pid)
	delete(u.leaving, pid) // it was another thread that took the leader's place
	u.keep(pid, func(s use) bool { return s.at > at })
}

// fork notes that a process began with the mappings of another.
func (u *users) fork(pid, parent uint32, at schema.KTime) {
	for _, s := range u.byPID[parent] {
		u.maps(pid, use{inode: s.inode, at: at})
	}
}

// exit notes that a leader ended. What it had mapped is forgotten later, when its first call has
// certainly been read.
func (u *users) exit(pid uint32, at schema.KTime) {
	if u.older[pid] || u.byPID[pid] != nil {
		u.leaving[pid] = at
	}
}

// agree takes over what a process was seen to have mapped. Uses since then are kept.
func (u *users) agree(pid uint32, found []mapped, since schema.KTime) {
	u.keep(pid, func(s use) bool {
		return s.at > since || slices.ContainsFunc(found, func(m mapped) bool { return m.inode == s.inode })
	})
}

func (u *users) keep(pid uint32, wanted func(use) bool) {
	list := u.byPID[pid]
	if list == nil {
		return
	}
	if list = slices.DeleteFunc(list, func(s use) bool { return !wanted(s) }); len(list) == 0 {
		delete(u.byPID, pid)
		return
	}
	u.byPID[pid] = list
}

// fromBefore are the processes older than the first probe that may have made calls, sorted; never nil.
func (u *users) fromBefore(hidden map[uint32]bool) []uint64 {
	list := []uint64{}
	for pid := range u.older {
		if u.byPID[pid] != nil || hidden[pid] {
			list = append(list, uint64(pid))
		}
	}
	slices.Sort(list)
	return list
}

// used are the libraries that some process has mapped. Inodes under which nobody has one are
// forgotten, but not the one of the file itself.
func (u *users) used() map[*library]bool {
	mapped := map[inode]bool{}
	for _, list := range u.byPID {
		for _, s := range list {
			mapped[s.inode] = true
		}
	}
	used := map[*library]bool{}
	for id, l := range u.files {
		if mapped[id] {
			used[l] = true
		} else if id != l.shown {
			delete(u.files, id)
		}
	}
	return used
}

// forget drops a library's file.
func (u *users) forget(gone *library) {
	for id, l := range u.files {
		if l == gone {
			delete(u.files, id)
		}
	}
}

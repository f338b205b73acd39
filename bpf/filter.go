package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Conditions on a process's control group, as bits; see enum filter of filter.h.
const (
	FilterCgroup    uint8 = 8
	FilterContainer uint8 = 16
)

const (
	filterComm = 1
	filterPID  = 2
	filterUID  = 4
)

// maxCgroups is the number of groups that may meet a condition at one time.
const maxCgroups = 16384

// Filter says which processes leave records. Every kind that has entries must hold, by any of them; the zero
// Filter lets all pass. A thread is judged at its first call, and again after an exec; of one that does not
// pass nothing is kept but that.
type Filter struct {
	Comms   []string          // of the process; Linux keeps CommBytes of a name
	PIDs    map[uint32]uint64 // when each was created, in ticks of 10 ms since boot
	UIDs    []uint32
	Cgroups uint8 // FilterCgroup, FilterContainer or both: which groups meet them is told by MeetCgroup
}

// CommBytes is the longest name that Linux keeps of a process.
const CommBytes = 15

// apply sets the filter in programs that are not loaded yet.
func (f *Filter) apply(spec *ebpf.CollectionSpec) error {
	active := uint32(f.Cgroups)
	fill := func(name string, bit uint32, entries []ebpf.MapKV) {
		if len(entries) > 0 {
			active |= bit
			spec.Maps[name].Contents, spec.Maps[name].MaxEntries = entries, uint32(len(entries))
		}
	}
	var comms, pids, uids []ebpf.MapKV
	for _, comm := range unique(f.Comms) {
		var key [CommBytes + 1]byte
		copy(key[:CommBytes], comm)
		comms = append(comms, ebpf.MapKV{Key: key, Value: uint8(1)})
	}
	for pid, ticks := range f.PIDs {
		pids = append(pids, ebpf.MapKV{Key: pid, Value: ticks})
	}
	for _, uid := range unique(f.UIDs) {
		uids = append(uids, ebpf.MapKV{Key: uid, Value: uint8(1)})
	}
	fill(TapMapFilterComms, filterComm, comms)
	fill(TapMapFilterPids, filterPID, pids)
	fill(TapMapFilterUids, filterUID, uids)
	if f.Cgroups != 0 {
		spec.Maps[TapMapFilterCgroups].MaxEntries = maxCgroups
	}
	if err := spec.Variables[TapVarFilters].Set(active); err != nil {
		return fmt.Errorf("set filters: %w", err)
	}
	return nil
}

func unique[T comparable](list []T) []T {
	var once []T
	seen := map[T]bool{}
	for _, v := range list {
		if !seen[v] {
			seen[v] = true
			once = append(once, v)
		}
	}
	return once
}

// MeetCgroup says which conditions a control group of version 2 meets, and so all inside it; id is its
// inode. Unlike other methods it and ForgetCgroup may be called beside them.
func (t *Tap) MeetCgroup(id uint64, conditions uint8) error {
	if err := t.coll.Maps[TapMapFilterCgroups].Put(id, conditions); err != nil {
		return fmt.Errorf("note a control group: %w", err)
	}
	return nil
}

// ForgetCgroup takes a group back.
func (t *Tap) ForgetCgroup(id uint64) error {
	if err := t.coll.Maps[TapMapFilterCgroups].Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget a control group: %w", err)
	}
	return nil
}

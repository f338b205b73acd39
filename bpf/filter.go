package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Conditions on a process, as bits of enum filter in filter.h. The last two are on its control group.
const (
	filterComm = 1
	filterPID  = 2
	filterUID  = 4

	FilterCgroup    uint8 = 8
	FilterContainer uint8 = 16
)

// maxCgroups limits the control groups that meet a condition at one time.
const maxCgroups = 16384

// Filter chooses the processes that write records. A process passes if each field with entries matches by one of them.
// The zero Filter passes all. Linux evaluates the filter at the first call of a thread, and again after an exec. For a
// thread that does not pass, Linux stores only a mark.
type Filter struct {
	Comms   []string          // names of processes; Linux truncates them to CommBytes
	PIDs    map[uint32]uint64 // PID to start time, in ticks of 10 ms since boot
	UIDs    []uint32
	Cgroups uint8 // FilterCgroup, FilterContainer or both; MeetCgroup adds the groups that meet them
}

// CommBytes is the length to which Linux truncates the name of a process.
const CommBytes = 15

// apply sets the filter in programs before they are loaded.
func (f *Filter) apply(spec *ebpf.CollectionSpec) error {
	active := uint32(f.Cgroups)
	set := func(name string, bit uint32, entries []ebpf.MapKV) {
		if len(entries) > 0 {
			active |= bit
			spec.Maps[name].MaxEntries = uint32(len(entries))
			spec.Maps[name].Contents = entries
		}
	}
	var comms, pids, uids []ebpf.MapKV
	for _, comm := range f.Comms {
		var key [CommBytes + 1]byte
		copy(key[:CommBytes], comm)
		comms = append(comms, ebpf.MapKV{Key: key, Value: uint8(1)})
	}
	for pid, ticks := range f.PIDs {
		pids = append(pids, ebpf.MapKV{Key: pid, Value: ticks})
	}
	for _, uid := range f.UIDs {
		uids = append(uids, ebpf.MapKV{Key: uid, Value: uint8(1)})
	}
	set(TapMapFilterComms, filterComm, comms)
	set(TapMapFilterPids, filterPID, pids)
	set(TapMapFilterUids, filterUID, uids)
	if f.Cgroups != 0 {
		spec.Maps[TapMapFilterCgroups].MaxEntries = maxCgroups
	}
	if err := spec.Variables[TapVarFilters].Set(active); err != nil {
		return fmt.Errorf("set filters: %w", err)
	}
	return nil
}

// MeetCgroup sets the conditions that a control group of version 2 and all groups inside it meet. id is the inode of
// the group. Other goroutines may call MeetCgroup and ForgetCgroup at any time.
func (t *Tap) MeetCgroup(id uint64, conditions uint8) error {
	if err := t.coll.Maps[TapMapFilterCgroups].Put(id, conditions); err != nil {
		return fmt.Errorf("add a control group to the filter: %w", err)
	}
	return nil
}

// ForgetCgroup removes a group.
func (t *Tap) ForgetCgroup(id uint64) error {
	if err := t.coll.Maps[TapMapFilterCgroups].Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove a control group from the filter: %w", err)
	}
	return nil
}

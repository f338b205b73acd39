package attach

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/schema"
)

// sideKind is the type of a side-band record.
type sideKind uint8

const (
	sideMap  sideKind = iota + 1 // a driver library or PyTorch's was mapped
	sideName                     // a thread has a new name
	sideExec                     // the process is a new image
	sideFork                     // a new process; it starts with the mappings of its parent
	sideExit                     // a thread ended
	sideLost                     // Linux had no room for records
)

// sideRecord is one side-band record that the probes use.
type sideRecord struct {
	kind     sideKind
	time     schema.KTime
	pid, tid uint32
	parent   uint32 // of sideFork
	name     [16]byte
	mapping  library.Mapping
	lost     uint64
}

// Sizes in struct perf_event_header and what follows it; each record ends with its time, as
// sample_id_all has it for a sample type of PERF_SAMPLE_TIME.
const (
	sideHeader  = 8
	sideIDs     = sideHeader + 8          // pid, tid
	sideMapPath = sideIDs + 3*8 + 3*8 + 8 // addresses, device and inode, protection
	sideTime    = 8

	commExec = 1 << 13 // PERF_RECORD_MISC_COMM_EXEC
)

// parseSide parses one record. ok is false for the many records that nobody uses, which cost no allocation, and for
// records that are too short for their type.
func parseSide(raw []byte) (r sideRecord, ok bool) {
	if len(raw) < sideIDs+sideTime {
		return r, false
	}
	le := binary.LittleEndian
	kind, misc := le.Uint32(raw), le.Uint16(raw[4:])
	body := raw[:len(raw)-sideTime]
	r.pid, r.tid = le.Uint32(raw[sideHeader:]), le.Uint32(raw[sideHeader+4:])
	switch kind {
	case unix.PERF_RECORD_MMAP2:
		if len(body) <= sideMapPath || !watched(body[sideMapPath:]) {
			return r, false
		}
		r.kind = sideMap
		start := le.Uint64(raw[sideIDs:])
		device := unix.Mkdev(le.Uint32(raw[sideIDs+24:]), le.Uint32(raw[sideIDs+28:]))
		r.mapping = library.Mapping{
			PID: r.pid, Start: start, End: start + le.Uint64(raw[sideIDs+8:]),
			Inode: library.Inode{Dev: device, Ino: le.Uint64(raw[sideIDs+32:])},
			Path:  unix.ByteSliceToString(body[sideMapPath:]),
		}
	case unix.PERF_RECORD_COMM:
		r.kind = sideName
		if misc&commExec != 0 {
			r.kind = sideExec
		}
		copy(r.name[:], body[sideIDs:])
	case unix.PERF_RECORD_FORK, unix.PERF_RECORD_EXIT: // pid, ppid, tid, ptid
		if len(body) < sideIDs+16 {
			return r, false
		}
		r.kind, r.parent, r.tid = sideExit, r.tid, le.Uint32(raw[sideIDs:])
		if kind == unix.PERF_RECORD_FORK {
			r.kind = sideFork
			if r.pid == r.parent {
				return r, false // a thread
			}
		}
	case unix.PERF_RECORD_LOST: // id, lost
		if len(body) < sideIDs+8 {
			return r, false
		}
		r.kind, r.pid, r.tid, r.lost = sideLost, 0, 0, le.Uint64(raw[sideIDs:])
	default:
		return r, false
	}
	r.time = schema.KTime(le.Uint64(raw[len(raw)-sideTime:]))
	return r, true
}

// watched reports whether a padded path names a driver library or PyTorch's. Linux appends " (deleted)" to a deleted
// file. The part of the name that decides is so short that its conversion costs no allocation.
func watched(path []byte) bool {
	if i := bytes.IndexByte(path, 0); i >= 0 {
		path = path[:i]
	}
	name := path[bytes.LastIndexByte(path, '/')+1:]
	return library.Of(string(name[:min(len(name), 16)])) != ""
}

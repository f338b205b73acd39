package process

import (
	"encoding/binary"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/procfs"
)

// handleLayout reads kernel names where the driver keeps them: with driver 580, a CUfunction or CUkernel points to a
// structure whose second word is the address of the name. That is no interface, so names that calls reported verify it.
// A single one may differ, since a handle can be reused before gputap reads it.
type handleLayout struct{ agree, differ int }

// refuted reports whether verified names show that this driver keeps them elsewhere.
func (l *handleLayout) refuted() bool { return l.differ > 8 && 4*l.differ > l.agree }

// enoughChecks is the number of agreeing names after which checks become rare: each costs two system calls.
const enoughChecks = 64

func (l *handleLayout) check(pid uint32, handle uint64, name string) {
	if l.refuted() || (l.agree >= enoughChecks && handle/16%64 != 0) {
		return
	}
	found, readable := nameBehind(pid, handle)
	switch {
	case !readable: // the process ended, or gputap may not read it
	case found == name:
		l.agree++
	default:
		l.differ++
	}
}

// mangled matches a text that may be a mangled name.
var mangled = regexp.MustCompile(`^[\w$.]*$`)

// read returns the name behind a handle, "" when the memory there does not look like a name.
func (l *handleLayout) read(pid uint32, handle uint64) string {
	if l.refuted() {
		return ""
	}
	name, _ := nameBehind(pid, handle)
	if !mangled.MatchString(name) {
		return ""
	}
	return name
}

func nameBehind(pid uint32, handle uint64) (name string, readable bool) {
	var word [8]byte
	if handle < 4096 || handle > 1<<47 || procfs.ReadMemory(pid, handle+8, word[:]) < len(word) {
		return "", false
	}
	address := binary.LittleEndian.Uint64(word[:])
	var buf [bpf.NameBytes]byte
	n := procfs.ReadMemory(pid, address, buf[:])
	if n <= 0 {
		return "", false
	}
	name = unix.ByteSliceToString(buf[:n])
	return name, len(name) < n
}

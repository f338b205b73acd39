package library

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gputap/gputap/schema"
)

// Site is where one call is probed in one library file.
type Site struct {
	Call    schema.CallID
	Offset  uint64 // in the file, after a leading endbr64
	Stepped bool   // Linux single-steps the instruction there: about ten times as slow
}

// Exports are the functions that a library exports.
type Exports struct {
	Sites  []Site            // of the wanted calls
	Absent []string          // wanted calls that the library does not have
	Names  map[uint64]string // file offset → function
}

// Read finds the wanted calls in a library. Two symbols with one offset yield one site, so a call is never
// recorded twice.
func Read(r io.ReaderAt, wanted []schema.CallID) (*Exports, error) {
	file, err := readELF(r)
	if err != nil {
		return nil, fmt.Errorf("read ELF: %w", err)
	}
	e := &Exports{Names: make(map[uint64]string, len(file.exported))}
	for name, offset := range file.exported {
		e.Names[offset] = name
	}
	taken := map[uint64]bool{}
	for _, id := range wanted {
		name := schema.Calls[id].Symbol
		offset, ok := file.exported[name]
		if !ok {
			e.Absent = append(e.Absent, name)
			continue
		}
		if taken[offset] {
			continue
		}
		taken[offset] = true
		e.Names[offset] = name // of several names keep the probed one
		s := Site{Call: id, Offset: offset}
		if file.machine == elf.EM_X86_64 {
			var code [8]byte
			if _, err := r.ReadAt(code[:], int64(offset)); err != nil && !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("symbol %s: read first instruction: %w", name, err)
			}
			skip, stepped := firstInstruction(code[:])
			s.Offset += skip
			s.Stepped = stepped
		}
		e.Sites = append(e.Sites, s)
	}
	return e, nil
}

// Inspect reports what attaching a library for every feature would find. It attaches nothing.
func Inspect(path string) (schema.Library, *Exports, error) {
	file, err := os.Open(path)
	if err != nil {
		return schema.Library{}, nil, fmt.Errorf("inspect library: %w", err)
	}
	defer file.Close()
	return inspect(file, path)
}

// Inspect does the same with the very file that a process has mapped.
func (m Mapping) Inspect() (schema.Library, error) {
	file, err := m.Open()
	if err != nil {
		return schema.Library{}, fmt.Errorf("inspect %s of process %d: %w", m.Path, m.PID, err)
	}
	defer file.Close()
	l, _, err := inspect(file, m.Path)
	return l, err
}

func inspect(file *os.File, path string) (schema.Library, *Exports, error) {
	exports, err := Read(file, callsOf(cmp.Or(Of(path), schema.DriverLibrary)))
	if err != nil {
		return schema.Library{}, nil, fmt.Errorf("inspect %s: %w", path, err)
	}
	l := schema.Library{Path: path, Attached: uint32(len(exports.Sites)), Absent: exports.Absent}
	for _, s := range exports.Sites {
		if s.Stepped {
			l.Stepped++
		}
	}
	return l, exports, nil
}

// callsOf lists the calls of a library that all features together probe.
func callsOf(library string) (ids []schema.CallID) {
	for id := range schema.Calls {
		c := &schema.Calls[id]
		if c.Shape != schema.ShapeNone && c.Library == library { // a process event is no call of a library
			ids = append(ids, schema.CallID(id))
		}
	}
	return ids
}

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// firstInstruction returns how many bytes of a leading endbr64 to skip, and whether Linux single-steps the instruction
// behind it. Linux emulates push, a one-byte nop, jmp and call. A probe further in would find a moved stack pointer,
// and a return probe there would break the program.
func firstInstruction(code []byte) (skip uint64, stepped bool) {
	if bytes.HasPrefix(code, endbr64) {
		skip = uint64(len(endbr64))
		code = code[skip:]
	}
	switch op := code[0]; {
	case op >= 0x50 && op <= 0x57, op == 0x90, op == 0xe8, op == 0xe9, op == 0xeb:
		return skip, false
	case op == 0x41 && code[1] >= 0x50 && code[1] <= 0x57:
		return skip, false
	}
	return skip, true
}

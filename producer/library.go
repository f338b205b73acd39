package producer

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/gputap/gputap/schema"
)

// site is where one call is probed in one library file.
type site struct {
	call    schema.CallID
	offset  uint64 // in the file, behind a leading endbr64
	stepped bool   // the instruction there is single-stepped by Linux: about ten times as slow
}

// exports is what a driver library exports.
type exports struct {
	sites  []site            // of the wanted calls
	absent []string          // wanted calls that are not there
	names  map[uint64]string // file offset → function
}

// readExports finds the wanted calls in a driver library. Aliases of an offset that is already taken
// are left out, so a call is never seen twice.
func readExports(r io.ReaderAt, wanted []schema.CallID) (*exports, error) {
	file, err := readELF(r)
	if err != nil {
		return nil, fmt.Errorf("read ELF: %w", err)
	}
	e := &exports{names: make(map[uint64]string, len(file.exported))}
	for name, value := range file.exported {
		if p := file.segmentOf(value); p != nil {
			e.names[value-p.Vaddr+p.Off] = name
		}
	}
	taken := map[uint64]bool{}
	for _, id := range wanted {
		name := schema.Calls[id].Symbol
		value, ok := file.exported[name]
		if !ok {
			e.absent = append(e.absent, name)
			continue
		}
		s, err := locate(file, r, id, value)
		if err != nil {
			return nil, fmt.Errorf("symbol %s: %w", name, err)
		}
		if !taken[s.offset] {
			taken[s.offset] = true
			p := file.segmentOf(value)
			e.names[value-p.Vaddr+p.Off] = name // of several names the one that is probed
			e.sites = append(e.sites, s)
		}
	}
	return e, nil
}

var errNoSegment = errors.New("address in no loadable segment")

func locate(file *elfFile, r io.ReaderAt, id schema.CallID, value uint64) (site, error) {
	p := file.segmentOf(value)
	if p == nil {
		return site{}, errNoSegment
	}
	s := site{call: id, offset: value - p.Vaddr + p.Off}
	var code [8]byte
	if _, err := r.ReadAt(code[:], int64(s.offset)); err != nil && !errors.Is(err, io.EOF) {
		return site{}, fmt.Errorf("read first instruction: %w", err)
	}
	if file.machine == elf.EM_X86_64 {
		skip, stepped := firstInstruction(code[:])
		s.offset += skip
		s.stepped = stepped
	}
	return s, nil
}

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// firstInstruction says how far to skip a leading endbr64, and whether Linux single-steps what is
// probed then: it emulates push, a one-byte nop, jmp and call. A probe further in would find a
// moved stack pointer, and a return probe there breaks the program.
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

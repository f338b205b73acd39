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

// symbols finds the wanted calls in a driver library. Symbols that are not there are absent;
// aliases of an offset that is already taken are left out, so a call is never seen twice.
func symbols(r io.ReaderAt, wanted []schema.CallID) (sites []site, absent []string, err error) {
	file, err := elf.NewFile(r)
	if err != nil {
		return nil, nil, fmt.Errorf("read ELF: %w", err)
	}
	exported, err := file.DynamicSymbols()
	if err != nil {
		return nil, nil, fmt.Errorf("read dynamic symbols: %w", err)
	}
	address := make(map[string]uint64, len(exported))
	for _, s := range exported {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value != 0 {
			address[s.Name] = s.Value
		}
	}
	taken := map[uint64]bool{}
	for _, id := range wanted {
		name := schema.Calls[id].Symbol
		value, ok := address[name]
		if !ok {
			absent = append(absent, name)
			continue
		}
		s, err := locate(file, r, id, value)
		if err != nil {
			return nil, nil, fmt.Errorf("symbol %s: %w", name, err)
		}
		if !taken[s.offset] {
			taken[s.offset] = true
			sites = append(sites, s)
		}
	}
	return sites, absent, nil
}

var errNoSegment = errors.New("address in no loadable segment")

func locate(file *elf.File, r io.ReaderAt, id schema.CallID, value uint64) (site, error) {
	for _, p := range file.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || value < p.Vaddr || value >= p.Vaddr+p.Filesz {
			continue
		}
		s := site{call: id, offset: value - p.Vaddr + p.Off}
		var code [8]byte
		if _, err := r.ReadAt(code[:], int64(s.offset)); err != nil && !errors.Is(err, io.EOF) {
			return site{}, fmt.Errorf("read first instruction: %w", err)
		}
		if file.Machine == elf.EM_X86_64 {
			skip, stepped := firstInstruction(code[:])
			s.offset += skip
			s.stepped = stepped
		}
		return s, nil
	}
	return site{}, errNoSegment
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

package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits on a file that has the name of a driver library. Driver 580 has 2 executable segments, 30 sections, 1,100
// symbols and 40 KiB of their names. Any user can map such a file, so debug/elf does not read it: that inflates
// compressed sections of any size, and copies the rest of the name table for each symbol.
const (
	maxSections   = 4096
	maxSymbols    = 1 << 16
	maxNameBytes  = 8 << 20
	maxNameLength = 256
)

// elfFile is the part of a library that a probe needs: its code segments and its exported functions.
type elfFile struct {
	machine  elf.Machine
	segments []elf.Prog64      // executable ones
	exported map[string]uint64 // offset in the file
}

var errTooLarge = errors.New("too large for a driver library")

// readELF reads a 64-bit little-endian library.
func readELF(r io.ReaderAt) (*elfFile, error) {
	var head elf.Header64
	if err := readAt(r, 0, &head); err != nil {
		return nil, err
	}
	if string(head.Ident[:4]) != elf.ELFMAG {
		return nil, errors.New("not an ELF file")
	}
	if elf.Class(head.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(head.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errors.New("not a 64-bit little-endian library")
	}
	f := &elfFile{machine: elf.Machine(head.Machine), exported: map[string]uint64{}}
	programs := make([]elf.Prog64, head.Phnum)
	if int(head.Phentsize) != binary.Size(elf.Prog64{}) || readAt(r, head.Phoff, programs) != nil {
		return nil, errors.New("no program headers")
	}
	for _, p := range programs {
		if elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0 {
			f.segments = append(f.segments, p)
		}
	}
	if head.Shnum > maxSections {
		return nil, fmt.Errorf("%d sections: %w", head.Shnum, errTooLarge)
	}
	sections := make([]elf.Section64, head.Shnum)
	if int(head.Shentsize) != binary.Size(elf.Section64{}) || readAt(r, head.Shoff, sections) != nil {
		return nil, errors.New("no section headers")
	}
	for _, s := range sections {
		if elf.SectionType(s.Type) == elf.SHT_DYNSYM && int(s.Link) < len(sections) {
			return f, f.symbols(r, s, sections[s.Link])
		}
	}
	return nil, elf.ErrNoSymbols
}

// symbols reads the defined functions of a symbol table.
func (f *elfFile) symbols(r io.ReaderAt, table, names elf.Section64) error {
	if table.Size/elf.Sym64Size > maxSymbols || names.Size > maxNameBytes {
		return fmt.Errorf("%d bytes of symbols, %d of names: %w", table.Size, names.Size, errTooLarge)
	}
	if elf.SectionFlag(table.Flags|names.Flags)&elf.SHF_COMPRESSED != 0 {
		return errors.New("its symbols are compressed: no loader accepts that")
	}
	symbols := make([]elf.Sym64, table.Size/elf.Sym64Size)
	if err := readAt(r, table.Off, symbols); err != nil {
		return fmt.Errorf("read dynamic symbols: %w", err)
	}
	text := make([]byte, names.Size)
	if err := readAt(r, names.Off, text); err != nil {
		return fmt.Errorf("read names of dynamic symbols: %w", err)
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Value == 0 || uint64(s.Name) >= uint64(len(text)) {
			continue
		}
		from := text[s.Name:]
		if end := bytes.IndexByte(from[:min(len(from), maxNameLength)], 0); end > 0 {
			f.export(string(from[:end]), s.Value)
		}
	}
	return nil
}

// export adds a function, unless its address is in no executable segment.
func (f *elfFile) export(name string, value uint64) {
	for _, p := range f.segments {
		if value >= p.Vaddr && value-p.Vaddr < p.Filesz {
			f.exported[name] = value - p.Vaddr + p.Off
			return
		}
	}
}

// readAt fills a value of fixed size with one read; the caller bounds its size.
func readAt(r io.ReaderAt, offset uint64, to any) error {
	size := binary.Size(to)
	if size == 0 {
		return nil
	}
	if offset > 1<<62 {
		return io.ErrUnexpectedEOF
	}
	return binary.Read(io.NewSectionReader(r, int64(offset), int64(size)), binary.LittleEndian, to)
}

package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"runtime"
	"testing"

	"github.com/gputap/gputap/schema"
)

// FuzzRead: any user can write a file with the name of a driver library.
func FuzzRead(f *testing.F) {
	f.Add(tinyLibrary(nil))
	f.Add(tinyLibrary(func(h *elf.Header64, _ []elf.Section64) { h.Shnum = 0xffff }))
	f.Add(tinyLibrary(func(h *elf.Header64, _ []elf.Section64) { h.Phoff = ^uint64(0) }))
	f.Add(tinyLibrary(func(_ *elf.Header64, s []elf.Section64) { s[0].Size = 1 << 62 }))
	f.Add([]byte("just a text that is called libcuda.so.1\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = Read(bytes.NewReader(data), callsOf(schema.DriverLibrary))
	})
}

const tinySymbol = "cuMemAlloc_v2"

// tinyLibrary has one segment, which is the whole file, and one function.
func tinyLibrary(change func(*elf.Header64, []elf.Section64)) []byte {
	const programs, sections, symbols, names, size = 64, 120, 248, 296, 512
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1}, Type: uint16(elf.ET_DYN),
		Machine: uint16(elf.EM_X86_64), Phoff: programs, Shoff: sections, Phentsize: 56, Phnum: 1,
		Shentsize: 64, Shnum: 2,
	}
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Filesz: size, Memsz: size}
	s := []elf.Section64{
		{Type: uint32(elf.SHT_DYNSYM), Off: symbols, Size: 2 * elf.Sym64Size, Link: 1},
		{Type: uint32(elf.SHT_STRTAB), Off: names, Size: 1 + uint64(len(tinySymbol)) + 1},
	}
	if change != nil {
		change(&h, s)
	}
	var b bytes.Buffer
	for _, part := range []any{&h, &p, s, []elf.Sym64{{}, {Name: 1, Info: byte(elf.STT_FUNC), Value: 400}}} {
		_ = binary.Write(&b, binary.LittleEndian, part)
	}
	b.WriteString("\x00" + tinySymbol + "\x00")
	return append(b.Bytes(), make([]byte, size-b.Len())...)
}

// TestHostileLibraries: Read returns an error or the exports that a loader would see, and allocates no more memory than
// a driver needs.
func TestHostileLibraries(t *testing.T) {
	real, err := os.ReadFile(stubPath)
	if err != nil {
		t.Fatalf("%v: run make stub", err)
	}
	type change = func(*elf.Header64, []elf.Section64)
	tests := map[string]struct {
		change change
		good   bool
	}{
		"a library":           {nil, true},
		"symbols without end": {func(_ *elf.Header64, s []elf.Section64) { s[0].Size = 1 << 62 }, false},
		"symbols behind it":   {func(_ *elf.Header64, s []elf.Section64) { s[0].Off = 1 << 40 }, false},
		"names without end":   {func(_ *elf.Header64, s []elf.Section64) { s[1].Size = 1 << 62 }, false},
		"compressed symbols": {func(_ *elf.Header64, s []elf.Section64) { s[0].Flags = uint64(elf.SHF_COMPRESSED) },
			false},
		"no such name table":     {func(_ *elf.Header64, s []elf.Section64) { s[0].Link = 1 << 30 }, false},
		"many sections":          {func(h *elf.Header64, _ []elf.Section64) { h.Shnum = 0xffff }, false},
		"sections of other size": {func(h *elf.Header64, _ []elf.Section64) { h.Shentsize = 1 }, false},
		"segments behind it":     {func(h *elf.Header64, _ []elf.Section64) { h.Phoff = 1 << 63 }, false},
		"of 32 bits": {func(h *elf.Header64, _ []elf.Section64) {
			h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32)
		}, false},
		"big endian": {func(h *elf.Header64, _ []elf.Section64) {
			h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, err := Read(bytes.NewReader(tinyLibrary(tt.change)), callsOf(schema.DriverLibrary))
			if (err == nil) != tt.good || tt.good && len(e.Sites) != 1 {
				t.Errorf("got %+v, %v", e, err)
			}
		})
	}
	t.Run("cut to 200 lengths", func(t *testing.T) {
		for i := range 200 {
			if _, err := Read(bytes.NewReader(real[:len(real)*i/200]), callsOf(schema.DriverLibrary)); err == nil {
				t.Errorf("%d of %d bytes are a library", len(real)*i/200, len(real))
			}
		}
	})
	t.Run("each name the whole table", func(t *testing.T) {
		const n, table = 50_000, 4 << 20
		library := tinyLibrary(func(_ *elf.Header64, s []elf.Section64) {
			s[0].Off, s[0].Size = 512, n*elf.Sym64Size
			s[1].Off, s[1].Size = 512+n*elf.Sym64Size, table
		})
		symbols := bytes.NewBuffer(library)
		for i := range uint32(n) {
			_ = binary.Write(symbols, binary.LittleEndian, elf.Sym64{Name: i, Info: byte(elf.STT_FUNC), Value: 400})
		}
		library = append(symbols.Bytes(), bytes.Repeat([]byte{'x'}, table)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Read(bytes.NewReader(library), callsOf(schema.DriverLibrary))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%d MiB were allocated", took>>20)
		}
	})
}

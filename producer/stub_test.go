package producer

import (
	"debug/elf"
	"runtime"
	"testing"

	"github.com/gputap/gputap/schema"
)

// stubPaths are the stub libraries by the library that they stand for.
var stubPaths = map[string]string{
	schema.DriverLibrary: "../bin/stub/libcuda.so.1", schema.TorchLibrary: "../bin/stub/libc10.so",
}

// TestStubExportsEveryRow: the stubs export every symbol of the call table at an address of its own. Each function
// begins as the real driver's do, with an instruction that Linux emulates.
func TestStubExportsEveryRow(t *testing.T) {
	for library, path := range stubPaths {
		t.Run(library, func(t *testing.T) { checkStub(t, library, path) })
	}
}

func checkStub(t *testing.T, library, path string) {
	file, err := elf.Open(path)
	if err != nil {
		t.Fatalf("%v: run make stub", err)
	}
	defer file.Close()
	exported, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	address := map[string]uint64{}
	shared := map[uint64]string{}
	for _, s := range exported {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Value == 0 {
			continue
		}
		if other := shared[s.Value]; other != "" {
			t.Errorf("%s and %s are one function", s.Name, other)
		}
		address[s.Name], shared[s.Value] = s.Value, s.Name
	}
	for i := range schema.Calls {
		c := &schema.Calls[i]
		if c.Shape == schema.ShapeNone || c.Library != library {
			continue // a process event, or a call of another library
		}
		t.Run(c.Symbol, func(t *testing.T) {
			if address[c.Symbol] == 0 {
				t.Fatal("the stub does not export it")
			}
			if first := byteAt(t, file, address[c.Symbol]); first != 0x55 && runtime.GOARCH == "amd64" {
				t.Errorf("begins with byte %#x, not with push %%rbp", first)
			}
		})
	}
}

func byteAt(t *testing.T, file *elf.File, address uint64) byte {
	for _, p := range file.Progs {
		if p.Type != elf.PT_LOAD || address < p.Vaddr || address >= p.Vaddr+p.Filesz {
			continue
		}
		var b [1]byte
		if _, err := p.ReadAt(b[:], int64(address-p.Vaddr)); err != nil {
			t.Fatal(err)
		}
		return b[0]
	}
	t.Fatalf("no segment holds %#x", address)
	return 0
}

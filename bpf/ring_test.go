//go:build bpf

package bpf

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

const (
	etherHead = 14 // of the input of a program, which sees only the bytes behind it
	noWakeup  = 1
)

// writer returns a program that writes the first bytes of its input into a ring.
func writer(t *testing.T, ring *ebpf.Map, length int32) *ebpf.Program {
	t.Helper()
	return loadTest(t, asm.Instructions{
		asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -512), asm.Mov.Imm(asm.R4, length),
		asm.FnSkbLoadBytes.Call(),
		asm.LoadMapPtr(asm.R1, ring.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -512),
		asm.Mov.Imm(asm.R3, length),
		asm.Mov.Imm(asm.R4, noWakeup), asm.FnRingbufOutput.Call(), asm.Return(),
	})
}

// discarder returns a program that reserves room in a ring and discards it.
func discarder(t *testing.T, ring *ebpf.Map, length int32) *ebpf.Program {
	t.Helper()
	return loadTest(t, asm.Instructions{
		asm.LoadMapPtr(asm.R1, ring.FD()), asm.Mov.Imm(asm.R2, length), asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "full"),
		asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R2, noWakeup), asm.FnRingbufDiscard.Call(), asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("full"), asm.Return(),
	})
}

func loadTest(t *testing.T, code asm.Instructions) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: code, License: "GPL"})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// openRing returns a ring of one page.
func openRing(t *testing.T) (*ebpf.Map, *Ring) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = m.Close() })
	ring, err := OpenRing(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Close)
	return m, ring
}

// TestRingReturnsRecordsOnceAndInOrder writes, discards and reads records of all sizes at random, also across the end
// of the ring. A full ring accepts no record until room is freed.
func TestRingReturnsRecordsOnceAndInOrder(t *testing.T) {
	m, ring := openRing(t)
	size := ring.Size()
	var writers, discarders []*ebpf.Program
	lengths := []int32{1, 7, 8, 33, 96, 500}
	for _, n := range lengths {
		writers, discarders = append(writers, writer(t, m, n)), append(discarders, discarder(t, m, n))
	}
	random := rand.New(rand.NewPCG(1, 2))
	var want [][]byte // written and not read
	taken, read, refused := 0, 0, 0
	data := make([]byte, etherHead+512)
	for range 20_000 {
		switch action := random.IntN(10); {
		case action < 7:
			kind := random.IntN(len(lengths))
			room := int(lengths[kind]+7)&^7 + 8
			program, discarded := writers[kind], action == 0
			if discarded {
				program = discarders[kind]
			}
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			result, err := program.Run(&ebpf.RunOptions{Data: data})
			if err != nil {
				t.Fatal(err)
			}
			if full := taken+room > size-1; full != (result != 0) { // Linux keeps a byte free
				t.Fatalf("a record of %d bytes: result %d, with %d of %d bytes in use", room, int32(result),
					taken, size)
			}
			if result != 0 {
				refused++
				continue
			}
			taken += room
			if !discarded {
				want = append(want, bytes.Clone(data[etherHead:][:lengths[kind]]))
			}
			if got := ring.Available(); got > taken {
				t.Fatalf("%d bytes are available, but %d were written", got, taken)
			}
		case action < 9:
			end := ring.Written()
			for n := random.IntN(20); n > 0; n-- {
				got := ring.Next(end)
				if got == nil {
					if ring.Available() != 0 {
						t.Fatalf("no record, but %d bytes are available", ring.Available())
					}
					if len(want) > 0 {
						t.Fatalf("%d records were not read", len(want))
					}
					break
				}
				if len(want) == 0 || !bytes.Equal(got, want[0]) {
					t.Fatalf("record %d is %x, want %x", read, got, want[:min(1, len(want))])
				}
				want, read = want[1:], read+1
			}
		default:
			ring.Free()
			taken = ring.Available()
		}
	}
	if read < 1000 || refused < 100 {
		t.Fatalf("only %d records were read and %d rejected", read, refused)
	}
}

// TestRingStopsAtEnd expects no record behind the given end, even after a discarded record.
func TestRingStopsAtEnd(t *testing.T) {
	m, ring := openRing(t)
	write, discard := writer(t, m, 8), discarder(t, m, 8)
	run := func(p *ebpf.Program) {
		if result, err := p.Run(&ebpf.RunOptions{Data: make([]byte, etherHead+8)}); err != nil || result != 0 {
			t.Fatalf("%d, %v", result, err)
		}
	}
	run(write)
	run(discard)
	end := ring.Written()
	run(discard)
	run(write)
	for i, there := range []bool{true, false, false} {
		if got := ring.Next(end); (got != nil) != there {
			t.Fatalf("record %d: %v", i, got)
		}
	}
	if ring.Next(ring.Written()) == nil || ring.Available() != 0 {
		t.Fatalf("the last record is missing; %d bytes are available", ring.Available())
	}
}

package process

import (
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// sizing gives a table the answers of the driver about devices.
type sizing struct {
	*Table
	t *testing.T
}

func (s sizing) total(pid, ordinal uint32, bytes uint64) {
	s.LearnDevice(&bpf.DeviceRecord{Head: s.head(pid, "cuDeviceTotalMem_v2"), Device: ordinal, Bytes: bytes})
}

func (s sizing) uuid(pid, ordinal uint32, symbol string, uuid [16]byte) {
	s.LearnDevice(&bpf.DeviceRecord{Head: s.head(pid, symbol), Device: ordinal, UUID: uuid})
}

// info is a cuMemGetInfo in a context of an ordinal.
func (s sizing) info(pid, ordinal uint32, bytes uint64) {
	s.LearnMemory(&bpf.MemoryRecord{Head: s.head(pid, "cuDevicePrimaryCtxRetain"), Ptr: 7, Device: int32(ordinal)})
	m := bpf.MemoryRecord{Head: s.head(pid, "cuMemGetInfo_v2"), Aux: bytes, Device: bpf.DeviceOfContext}
	m.CUDAContext = 7
	s.LearnMemory(&m)
}

func (s sizing) head(pid uint32, symbol string) bpf.Head {
	return bpf.Head{Call: callID(s.t, symbol), TGID: pid, TID: pid, Time: 1}
}

func (s sizing) bytes(pid, ordinal uint32) uint64 {
	return s.GPU(s.Thread(&bpf.Head{TGID: pid, TID: pid}).Process, ordinal).Bytes
}

func TestSizesOfGPUs(t *testing.T) {
	const one, two = 1 << 30, 1<<30 + 1 // no pids of this host
	card := [16]byte{0x94, 0xc5, 0x87, 0x0c, 0xbf, 0x0b, 0xf1, 0x3a, 0xff, 0xd6, 0x57, 0x6f, 0x3d, 0x56, 0xba, 0x85}
	partA, partB := [16]byte{1}, [16]byte{2}
	for _, row := range []struct {
		name     string
		do       func(s sizing)
		one, two uint64 // ordinal 0 of each process
		card     uint64 // in heartbeats
	}{
		{"unknown", func(s sizing) { s.uuid(one, 0, "cuDeviceGetUuid", card) }, 0, 0, 0},
		{"told before the UUID, as the CUDA runtime does", func(s sizing) {
			s.total(one, 0, 141)
			s.uuid(one, 0, "cuDeviceGetUuid", card)
			s.uuid(two, 0, "cuDeviceGetUuid", card)
		}, 141, 141, 141},
		{"told after the UUID", func(s sizing) {
			s.uuid(two, 0, "cuDeviceGetUuid", card)
			s.uuid(one, 0, "cuDeviceGetUuid", card)
			s.total(one, 0, 141)
		}, 141, 141, 141},
		{"two ordinals", func(s sizing) {
			s.uuid(two, 0, "cuDeviceGetUuid", card)
			s.uuid(one, 1, "cuDeviceGetUuid", card)
			s.total(one, 0, 80)
			s.total(one, 1, 141)
		}, 80, 141, 141},
		{"by the total of cuMemGetInfo", func(s sizing) {
			s.uuid(one, 0, "cuDeviceGetUuid", card)
			s.info(one, 0, 140)
			s.uuid(two, 0, "cuDeviceGetUuid", card)
		}, 140, 140, 140},
		{"cuDeviceTotalMem replaces that", func(s sizing) {
			s.uuid(one, 0, "cuDeviceGetUuid", card)
			s.info(one, 0, 140)
			s.total(one, 0, 141)
			s.info(one, 0, 140)
		}, 141, 0, 141},
		{"a process that is limited to a part", func(s sizing) {
			for _, pid := range []uint32{one, two} {
				s.uuid(pid, 0, "cuDeviceGetUuid", card)
			}
			s.total(one, 0, 141)
			s.info(two, 0, 20)
		}, 141, 20, 141},
		{"MIG parts", func(s sizing) {
			s.uuid(one, 0, "cuDeviceGetUuid_v2", partA)
			s.uuid(two, 0, "cuDeviceGetUuid_v2", partB)
			s.total(one, 0, 16)
			s.total(two, 0, 35)
		}, 16, 35, 0},
		{"not of an ordinal that no process can have", func(s sizing) {
			s.total(one, MaxOrdinals, 141)
			s.total(one, 1<<32-1, 141)
		}, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := sizing{NewTable(noLibraries{}), t}
			s.Cards = twoCards(t)
			row.do(s)
			if a, b, c := s.bytes(one, 0), s.bytes(two, 0), s.Cards[1].Bytes; a != row.one || b != row.two ||
				c != row.card {
				t.Errorf("%d and %d bytes, card %d; want %d, %d, %d", a, b, c, row.one, row.two, row.card)
			}
		})
	}
}

// TestInferredGPUGivesNoSize: an inferred UUID may be wrong, so its process says nothing about the card; but it has the
// size of the card.
func TestInferredGPUGivesNoSize(t *testing.T) {
	s := sizing{NewTable(noLibraries{}), t}
	s.Cards = twoCards(t)
	p := s.Thread(&bpf.Head{TGID: 1 << 30, TID: 1 << 30}).Process
	p.gpus[0] = schema.GPU{UUID: first, Inferred: true}
	s.total(1<<30, 0, 141)
	if len(s.sizes) != 0 {
		t.Errorf("learned %v", s.sizes)
	}
	clear(p.sizes)
	s.sizes[first] = 80
	if got := s.bytes(1<<30, 0); got != 80 {
		t.Errorf("%d bytes", got)
	}
}

func TestSizesAreBounded(t *testing.T) {
	s := sizing{NewTable(noLibraries{}), t}
	for i := range uint32(2 * maxSizes) {
		s.uuid(1<<30, 0, "cuDeviceGetUuid", [16]byte{byte(i), byte(i >> 8), 1})
		s.total(1<<30, 0, 141)
	}
	if n := len(s.sizes); n != maxSizes {
		t.Errorf("%d GPUs", n)
	}
}

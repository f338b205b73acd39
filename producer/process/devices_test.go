package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// information is a file of the driver of an H200.
const information = `Model: 		 NVIDIA H200
IRQ:   		 41
GPU UUID: 	 %s
Video BIOS: 	 96.00.a5.00.1a
Bus Type: 	 PCIe
Bus Location: 	 %s
Device Minor: 	 %d
GPU Excluded:	 No
`

const (
	first  = "GPU-94c5870c-bf0b-f13a-ffd6-576f3d56ba85"
	second = "GPU-11111111-2222-3333-4444-555555555555"
)

// twoCards are cards whose minors and bus addresses are in opposite order.
func twoCards(t *testing.T) []Card {
	dir := t.TempDir()
	for i, uuid := range []string{first, second} {
		bus := fmt.Sprintf("0000:%02x:00.0", 0xc0-0x40*i)
		path := filepath.Join(dir, "gpus", bus)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "information"), fmt.Appendf(nil, information, uuid, bus, i),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cards(dir)
}

func TestCards(t *testing.T) {
	got := twoCards(t)
	if len(got) != 2 || got[0].UUID != second || got[1].UUID != first {
		t.Fatalf("not in the order of the bus: %+v", got)
	}
	want := Card{GPU: schema.GPU{UUID: second, Ordinal: 1, Name: "NVIDIA H200", Bus: "0000:80:00.0"}, Minor: 1}
	if got[0] != want {
		t.Errorf("got %+v, want %+v", got[0], want)
	}
	if none := cards(t.TempDir()); none != nil {
		t.Errorf("no driver, and %v", none)
	}
}

func TestVisible(t *testing.T) {
	all := twoCards(t)
	tests := []struct {
		name  string
		value string
		set   bool
		want  []string
	}{
		{"not set", "", false, []string{second, first}},
		{"empty", "", true, nil},
		{"one by number", "1", true, []string{first}},
		{"reversed", "1,0", true, []string{first, second}},
		{"spaces", " 1 , 0 ", true, []string{first, second}},
		{"by UUID", first, true, []string{first}},
		{"by the beginning of a UUID", "GPU-94c5", true, []string{first}},
		{"ends at the first entry without a card", "1,7,0", true, []string{first}},
		{"minus one hides the rest", "0,-1,1", true, []string{second}},
		{"nonsense", "all", true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{}
			if tt.set {
				env[visibleDevices] = tt.value
			}
			got := visibleTo(all, env)
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i].UUID != tt.want[i] {
					t.Errorf("ordinal %d is %s, want %s", i, got[i].UUID, tt.want[i])
				}
			}
		})
	}
}

func TestBusAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:06:00.0": "0000:06:00.0", "00000000:C6:00.0": "0000:c6:00.0", "6:00.0": "6:00.0", "": "",
	} {
		if got := busAddress(in); got != want {
			t.Errorf("busAddress(%q) = %q, want %q", in, got, want)
		}
	}
}

func callID(t *testing.T, symbol string) uint16 {
	t.Helper()
	for id := range schema.Calls {
		if schema.Calls[id].Symbol == symbol {
			return uint16(id)
		}
	}
	t.Fatalf("no call %s", symbol)
	return 0
}

func TestIdentifyDevice(t *testing.T) {
	raw := [16]byte{0x94, 0xc5, 0x87, 0x0c, 0xbf, 0x0b, 0xf1, 0x3a, 0xff, 0xd6, 0x57, 0x6f, 0x3d, 0x56, 0xba, 0x85}
	part := [16]byte{1, 2, 3}
	host := twoCards(t)
	say := func(symbol string, uuid [16]byte, text string) *bpf.DeviceRecord {
		r := &bpf.DeviceRecord{Head: bpf.Head{Call: callID(t, symbol)}, Device: 3, UUID: uuid}
		copy(r.Text[:], text)
		return r
	}
	v1, v2 := say("cuDeviceGetUuid", raw, ""), say("cuDeviceGetUuid_v2", part, "")
	bus := say("cuDeviceGetPCIBusId", [16]byte{}, "00000000:C0:00.0")
	const mig = "MIG-01020300-0000-0000-0000-000000000000"
	tests := []struct {
		name string
		said []*bpf.DeviceRecord
		want string
	}{
		{"a card", []*bpf.DeviceRecord{v1}, first},
		{"a part of a card", []*bpf.DeviceRecord{v2}, mig},
		{"both, the part last", []*bpf.DeviceRecord{v1, v2}, mig},
		{"both, the part first", []*bpf.DeviceRecord{v2, v1}, mig},
		{"by its bus address", []*bpf.DeviceRecord{bus}, first},
		{"a bus address after a UUID", []*bpf.DeviceRecord{v2, bus}, mig},
		{"a name is no identity", []*bpf.DeviceRecord{say("cuDeviceGetName", raw, "NVIDIA H200")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDevices(&budget{})
			for _, r := range tt.said {
				d.identify(r, host)
			}
			if got := d.gpus[3]; got.UUID != tt.want || got.Inferred {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

// TestDeviceThatIsNoOrdinal: cuDeviceGet maps such a device to the card of an ordinal.
func TestDeviceThatIsNoOrdinal(t *testing.T) {
	host := twoCards(t)
	d := newDevices(&budget{})
	d.visible = host
	d.identify(&bpf.DeviceRecord{Head: bpf.Head{Call: callID(t, "cuDeviceGet")}, Device: 7, Ordinal: 1}, host)
	for _, device := range []uint32{7, 1} {
		if got := d.gpu(device); got.UUID != host[1].UUID || !got.Inferred {
			t.Errorf("device %d is %+v, want %s, inferred", device, got, host[1].UUID)
		}
	}
}

// TestReportedGPUReplacesInferredGPU checks that the UUID that the driver returns for an ordinal replaces the inferred
// one.
func TestReportedGPUReplacesInferredGPU(t *testing.T) {
	host := twoCards(t)
	d := newDevices(&budget{})
	d.gpus[0] = schema.GPU{UUID: second, Inferred: true}
	r := &bpf.DeviceRecord{Head: bpf.Head{Call: callID(t, "cuDeviceGetPCIBusId")}}
	copy(r.Text[:], "00000000:C0:00.0")
	d.identify(r, host)
	if want := (schema.GPU{UUID: first}); d.gpus[0] != want {
		t.Errorf("got %+v, want %+v", d.gpus[0], want)
	}
}

// TestContextHandleIsReused: after a handle was reused for another GPU, earlier calls and CUDA streams keep the old
// GPU.
func TestContextHandleIsReused(t *testing.T) {
	table := NewTable(noLibraries{})
	head := bpf.Head{TGID: 1 << 30, TID: 1 << 30}
	call := func(symbol string, at, ptr, context uint64, device int32) {
		m := &bpf.MemoryRecord{Head: head, Ptr: ptr, Device: device}
		m.Call, m.Time, m.CUDAContext = callID(t, symbol), at, context
		table.LearnMemory(m)
	}
	call("cuCtxCreate_v2", 10, 0x10, 0, 0)
	call("cuDevicePrimaryCtxRetain", 11, 0x20, 0, 1)
	call("cuStreamCreate", 15, 0x100, 0x20, -1)
	call("cuCtxCreate_v2", 30, 0x10, 0, 1)
	tests := []struct {
		at, context, cudaStream uint64
		want                    uint32
	}{
		{20, 0x10, 0, 0}, {40, 0x10, 0, 1}, {29, 0x10, 1, 0}, {20, 0x20, 0, 1}, {20, 0x10, 0x100, 1}, {14, 0x10, 0x100,
			0},
		{20, 0, 0x100, 1},
	}
	for _, tt := range tests {
		h := &bpf.Head{Time: tt.at, CUDAContext: tt.context}
		d := &table.Thread(&head).Process.devices
		got, known := d.Ordinal(d.ContextOf(h, tt.cudaStream), schema.KTime(tt.at))
		if !known || got != tt.want {
			t.Errorf("at %d in context %#x, CUDA stream %#x: GPU %d (%v), want %d", tt.at, tt.context, tt.cudaStream,
				got, known, tt.want)
		}
	}
}

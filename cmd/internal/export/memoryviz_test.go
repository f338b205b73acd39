package export

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const python = "/usr/bin/python3"

// unpickled loads a pickle with Python and returns it as JSON.
func unpickled(t *testing.T, data []byte) []byte {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		needs(t, "GPUTAP_REQUIRE_PYTHON", python)
	}
	cmd := exec.Command(python, "-c", "import json, pickle, sys\n"+
		"json.dump(pickle.load(sys.stdin.buffer), sys.stdout)")
	cmd.Stdin = bytes.NewReader(data)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	check(t, err)
	return out
}

type vizFrame struct {
	Filename, Name string
	Line           int
}

type vizSnapshot struct {
	Segments []struct {
		Device        int
		Address       uint64
		TotalSize     uint64 `json:"total_size"`
		Stream        *int
		SegmentType   string `json:"segment_type"`
		AllocatedSize uint64 `json:"allocated_size"`
		ActiveSize    uint64 `json:"active_size"`
		Frames        []vizFrame
		Blocks        []struct {
			Address, Size uint64
			RequestedSize uint64 `json:"requested_size"`
			State         string
			Frames        []vizFrame
		}
	}
	DeviceTraces [][]vizEvent `json:"device_traces"`
}

func TestMemoryVizEqualsNaiveFigures(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8)
	path := f.record()
	_, err := typed(t, "memory-viz", path, "-o", "-", "--host", "gpu-1")
	if app.ExitCode(err) != 2 || !strings.Contains(err.Error(), "2 are selected: gpu-1/100 train, gpu-1/101 serve") {
		t.Error(err)
	}
	var s vizSnapshot
	data := exported(t, "memory-viz", path, "-o", "-", "--host", "gpu-1", "--pid", "100")
	check(t, json.Unmarshal(unpickled(t, data), &s))

	wantReserved, wantActive, actions := uint64(0), uint64(0), map[string]int{}
	segments := map[uint64]*life{}
	for _, l := range f.lives {
		if l.host != "gpu-1" || l.pid != 100 {
			continue
		}
		segments[l.ptr] = l
		actions["segment_alloc"]++
		if l.until == 0 {
			wantReserved += l.bytes
		} else {
			actions["segment_free"]++
		}
	}
	for _, b := range f.blocks {
		if b.host != "gpu-1" || b.pid != 100 {
			continue
		}
		within, live := segments[b.ptr], b.until == 0
		actions["alloc"]++
		if within == nil { // it has a segment of its own
			actions["segment_alloc"]++
			if live {
				wantReserved += b.bytes
			} else {
				actions["segment_free"]++
			}
		} else {
			live = live && within.until == 0
		}
		if live {
			wantActive += b.bytes
		} else {
			actions["free_requested"]++
			actions["free_completed"]++
		}
	}
	reserved, active := s.totals(t)
	if reserved != wantReserved || active != wantActive || active == 0 {
		t.Errorf("%d bytes are reserved and %d active, want %d, %d", reserved, active, wantReserved, wantActive)
	}
	if len(s.DeviceTraces) != 1 {
		t.Fatalf("%d devices", len(s.DeviceTraces))
	}
	last := int64(0)
	for _, e := range s.DeviceTraces[0] {
		actions[e.Action]--
		if e.TimeUS < last || e.Stream == nil || len(e.Frames) != 1 || e.Frames[0].Name == "" {
			t.Fatalf("%+v", e)
		}
		last = e.TimeUS
	}
	for name, n := range actions {
		if n != 0 {
			t.Errorf("%d actions %s are missing", n, name)
		}
	}
}

// totals returns the bytes of segments and active blocks. The blocks of a segment lie side by side.
func (s *vizSnapshot) totals(t *testing.T) (reserved, active uint64) {
	t.Helper()
	for _, segment := range s.Segments {
		at, allocated := segment.Address, uint64(0)
		for _, b := range segment.Blocks {
			requested, frames := uint64(0), 0
			if b.State == "active_allocated" {
				requested, frames = b.Size, 1
			}
			if b.Address != at || b.RequestedSize != requested || len(b.Frames) != frames {
				t.Fatalf("block %+v is not at %#x", b, at)
			}
			at += b.Size
			allocated += requested
		}
		if at != segment.Address+segment.TotalSize || segment.AllocatedSize != allocated || segment.Stream == nil ||
			segment.ActiveSize != allocated || segment.SegmentType == "" {
			t.Fatalf("segment %+v", segment)
		}
		reserved += segment.TotalSize
		active += allocated
	}
	return reserved, active
}

// TestOverlappingMemory: the end of live memory in the place of which other memory is allocated was not seen. The
// snapshot frees it there and says so; the end of memory by an event is no loss.
func TestOverlappingMemory(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, tt := range map[string]struct {
		first, step uint64
		free        bool
		live        uint64 // bytes at the end
		want        string // "": status 0
	}{
		"apart":       {0x7f00_0000_0000, gib, false, 8 * gib, ""},
		"freed":       {0x7f00_0000_0000, 0, true, gib, ""},
		"overlapping": {0x2800_0001_7842, 2000, false, gib, "7 allocations overlap live memory"},
	} {
		f := &fleet{t: t}
		h := consumertest.Memory(t, "gpu-1")
		p := h.Process(7, 1, "train")
		p.GPU = &schema.GPU{UUID: "GPU-1"}
		for i := range uint64(8) {
			at := schema.KTime(1e9 * (1 + i))
			if tt.free && i > 0 {
				p.Free(7, tt.first, at, 10)
			}
			p.Alloc(7, tt.first+i*tt.step, gib, at, 10)
		}
		f.add(schema.KindMemory, h.Message())
		out, err := typed(t, "memory-viz", f.record(), "-o", "-")
		status, message := 0, ""
		if tt.want != "" {
			status, message = 4, "the data are incomplete: "+tt.want
		}
		if app.ExitCode(err) != status || err != nil && !strings.HasPrefix(err.Error(), message) {
			t.Errorf("%s: status %d, %v", name, app.ExitCode(err), err)
		}
		var s vizSnapshot
		check(t, json.Unmarshal(unpickled(t, out), &s))
		if reserved, _ := s.totals(t); reserved != tt.live {
			t.Errorf("%s: %d bytes are reserved, want %d", name, reserved, tt.live)
		}
	}
}

// TestArraysHavePlaces: handles of CUDA arrays are closer than the arrays are large.
func TestArraysHavePlaces(t *testing.T) {
	t.Parallel()
	f := &fleet{t: t}
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-1"}
	for i := range uint64(5) {
		at, handle := schema.KTime(1e9*(1+i)), 0x1987_8750+i*0xa90
		p.Call("cuArrayCreate_v2", 7, schema.Memory{Time: at, Duration: 10, Ptr: handle, Bytes: 4 << 20})
		if i%2 == 1 {
			p.Call("cuArrayDestroy", 7, schema.Memory{Time: at + 100, Duration: 10, Ptr: handle})
		}
	}
	f.add(schema.KindMemory, h.Message())
	var s vizSnapshot
	check(t, json.Unmarshal(unpickled(t, exported(t, "memory-viz", f.record(), "-o", "-")), &s))
	if reserved, _ := s.totals(t); reserved != 12<<20 || len(s.Segments) != 3 {
		t.Errorf("%d bytes in %d segments are reserved, want 12 MiB in 3", reserved, len(s.Segments))
	}
}

// TestOverlappingBlocks counts each allocation in the place of live memory once.
func TestOverlappingBlocks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		actions []action
		want    uint64
	}{
		"blocks of a segment": {[]action{{addr: 100, bytes: 100}, {addr: 100, bytes: 50, verb: blockAlloc},
			{addr: 150, bytes: 50, verb: blockAlloc}}, 0},
		"a block again": {[]action{{addr: 100, bytes: 100}, {addr: 100, bytes: 50, verb: blockAlloc},
			{addr: 100, bytes: 50, verb: blockFree}, {addr: 100, bytes: 20, verb: blockAlloc}}, 0},
		"a block over two": {[]action{{addr: 100, bytes: 100}, {addr: 100, bytes: 50, verb: blockAlloc},
			{addr: 150, bytes: 50, verb: blockAlloc}, {addr: 120, bytes: 40, verb: blockAlloc}}, 1},
		"a block beyond its segment": {[]action{{addr: 100, bytes: 100},
			{addr: 150, bytes: 100, verb: blockAlloc}}, 1},
		"a segment over a block's own": {[]action{{addr: 100, bytes: 10, verb: blockAlloc}, {addr: 100, bytes: 90}}, 1},
		"a segment after its own blocks": {[]action{{addr: 100, bytes: 10, verb: blockAlloc},
			{addr: 100, bytes: 10, verb: blockFree}, {addr: 100, bytes: 90}}, 0},
		"a segment freed under its block": {[]action{{addr: 100, bytes: 100}, {addr: 100, bytes: 50, verb: blockAlloc},
			{addr: 100, bytes: 100, verb: segmentFree}, {addr: 100, bytes: 100}}, 0},
	} {
		s := deviceState{write: func(string, *area, int64) {}}
		for i := range tt.actions {
			s.apply(&tt.actions[i])
		}
		if s.overlaps != tt.want {
			t.Errorf("%s: %d allocations overlap, want %d", name, s.overlaps, tt.want)
		}
	}
}

// TestDeviceStateSuitsTheViewer applies arbitrary actions. At every moment, each block lies in segments, and areas do
// not overlap: the viewer fails otherwise.
func TestDeviceStateSuitsTheViewer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var s deviceState
		var v viewerState
		segments, blocks := map[uint64]area{}, map[uint64]area{}
		s.write = func(name string, a *area, _ int64) {
			v.names, v.events = append(v.names, name), append(v.events, *a)
			of := blocks
			if strings.HasPrefix(name, "segment") {
				of = segments
			}
			_, has := of[a.addr]
			switch {
			case name == "free_requested":
			case strings.HasSuffix(name, "alloc") || name == "segment_map":
				if has {
					t.Fatalf("seed %d: %s at %#x, where something is", seed, name, a.addr)
				}
				of[a.addr] = *a
			default:
				delete(of, a.addr)
			}
		}
		for at := range 500 {
			a := action{addr: 1 + rng.Uint64N(200), bytes: 1 + rng.Uint64N(20), verb: verb(rng.IntN(4)),
				vmm: rng.IntN(3) == 0}
			if at < 20 {
				a.verb, a.known = segmentAlloc, true
				one := area{addr: a.addr, bytes: a.bytes}
				s.clear(&s.segments, &one, 0, s.freeSegment)
				segments[a.addr] = area{addr: a.addr, bytes: a.bytes, vmm: a.vmm, known: true}
			}
			s.apply(&a)
			disjoint(t, s.segments, segments)
			disjoint(t, s.blocks, blocks)
			for i := range s.blocks {
				if !s.segments.holds(&s.blocks[i]) {
					t.Fatalf("seed %d: block %+v has no segment", seed, s.blocks[i])
				}
			}
		}
		v.segments, v.blocks = slices.Clone(s.segments.merged()), slices.Clone(s.blocks)
		v.undo(t)
	}
}

// viewerState undoes events in the way of the viewer, which draws each moment from the last one backwards.
type viewerState struct {
	names            []string
	events           areas
	segments, blocks areas
}

func (v *viewerState) undo(t *testing.T) {
	t.Helper()
	for i, a := range slices.Backward(v.events) {
		switch v.names[i] {
		case "segment_free":
			v.segments = append(v.segments, a)
		case "segment_unmap":
			v.segments = append(slices.DeleteFunc(v.segments, func(b area) bool {
				touches := b.end() == a.addr || a.end() == b.addr
				if touches {
					a = area{addr: min(a.addr, b.addr), bytes: a.bytes + b.bytes}
				}
				return touches
			}), a)
		case "segment_alloc":
			at := slices.IndexFunc(v.segments, func(b area) bool { return b.addr == a.addr && b.bytes == a.bytes })
			v.segments = slices.Delete(v.segments, at, at+1)
		case "segment_map":
			at := slices.IndexFunc(v.segments, func(b area) bool { return b.addr <= a.addr && a.end() <= b.end() })
			b := v.segments[at]
			v.segments = slices.Delete(v.segments, at, at+1)
			for _, part := range []area{{addr: b.addr, bytes: a.addr - b.addr},
				{addr: a.end(), bytes: b.end() - a.end()}} {
				if part.bytes > 0 {
					v.segments = append(v.segments, part)
				}
			}
		case "alloc":
			v.blocks = slices.DeleteFunc(v.blocks, func(b area) bool { return b.addr == a.addr })
		case "free_completed":
			if slices.ContainsFunc(v.blocks, func(b area) bool { return b.addr < a.end() && a.addr < b.end() }) {
				t.Fatalf("before event %d, block %+v overlaps", i, a)
			}
			v.blocks = append(v.blocks, a)
		}
		for _, b := range v.blocks {
			if !slices.ContainsFunc(v.segments, func(s area) bool { return s.addr <= b.addr && b.addr < s.end() }) {
				t.Fatalf("before event %d, block %+v has no segment", i, b)
			}
		}
	}
}

func disjoint(t *testing.T, got areas, written map[uint64]area) {
	t.Helper()
	end := uint64(0)
	for _, a := range got {
		if a.addr < end || written[a.addr] != a {
			t.Fatalf("%+v overlaps, or was written as %+v", a, written[a.addr])
		}
		end = a.end()
	}
	if len(got) != len(written) {
		t.Fatalf("%d areas, %d were written", len(got), len(written))
	}
}

// TestPhysicalMemoryIsWhereItIsMapped uses a handle twice, as the driver does.
func TestPhysicalMemoryIsWhereItIsMapped(t *testing.T) {
	t.Parallel()
	v := memoryViz{
		actions: []action{{at: 10, addr: 7, verb: segmentAlloc, vmm: true},
			{at: 30, addr: 7, verb: segmentFree, vmm: true}, {at: 40, addr: 7, verb: segmentAlloc, vmm: true},
			{at: 40, addr: 8, verb: segmentAlloc, vmm: true}},
		maps: []mapping{{45, 7, 0x2000}, {15, 7, 0x1000}, {20, 7, 0x5000}},
	}
	v.resolve()
	for i, want := range []uint64{0x1000, 0x1000, 0x2000, 8} {
		if v.actions[i].addr != want {
			t.Errorf("action %d is at %#x, want %#x", i, v.actions[i].addr, want)
		}
	}
}

func TestPicklesLoadInPython(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newPickler(&out)
	numbers := []uint64{0, 1, 127, 128, 255, 256, 1<<15 - 1, 1 << 31, 1<<63 - 1, 1 << 63, math.MaxUint64}
	p.dict(func() {
		p.text("numbers")
		p.list()
		for _, n := range numbers {
			p.item(func() { p.number(n) })
		}
		p.text("texts")
		p.list()
		for _, s := range []string{"", "é", "numbers", "é"} {
			p.item(func() { p.text(s) })
		}
		p.text("pair")
		p.pair(1, 2)
		p.text("truths")
		p.list()
		p.item(func() { p.truth(true) })
		p.item(func() { p.truth(false) })
		p.text("empty")
		p.dict(func() {})
	})
	check(t, p.end())
	const want = `{"numbers": [0, 1, 127, 128, 255, 256, 32767, 2147483648, 9223372036854775807, 9223372036854775808, ` +
		`18446744073709551615], "texts": ["", "\u00e9", "numbers", "\u00e9"], "pair": [1, 2], "truths": [true, false], ` +
		`"empty": {}}`
	if got := string(unpickled(t, out.Bytes())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

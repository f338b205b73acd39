package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// viewerDevice has all that PyTorch's viewer shows of one device.
type viewerDevice struct {
	Device         int
	History        viewerHistory
	Memory, Cached viewerTimeline
	PeakAllocated  uint64 `json:"peak_allocated"`
	PeakReserved   uint64 `json:"peak_reserved"`
}

// viewerHistory has the texts about each event, and about each area that is drawn at the first event and at the last.
type viewerHistory struct{ Events, First, Last []string }

// viewerTimeline has the texts about each shape. The last shape is the sum of those that are not drawn.
type viewerTimeline struct {
	Shapes           []string
	Zoomed, Selected string // transformations
	Least            int    // shapes at the lowest detail
}

// viewed opens a snapshot in PyTorch's MemoryViz.js. The file is not part of gputap.
func viewed(t *testing.T, snapshot []byte) (devices []viewerDevice) {
	t.Helper()
	viewer := os.Getenv("GPUTAP_MEMORYVIZ_JS")
	if viewer == "" {
		t.Skip("needs GPUTAP_MEMORYVIZ_JS, the path of torch/utils/viz/MemoryViz.js of PyTorch")
	}
	path := filepath.Join(t.TempDir(), "snapshot.pickle")
	check(t, os.WriteFile(path, snapshot, 0o600))
	check(t, json.Unmarshal(node(t, "memoryviz.mjs", viewer, path), &devices))
	for _, d := range devices {
		for _, v := range []viewerTimeline{d.Memory, d.Cached} {
			shapes := len(v.Shapes) - 1
			if shapes > 1 && (v.Zoomed == "" || v.Selected == "") || v.Least != min(shapes, 1)+1 {
				t.Errorf("device %d: after zoom and selection, the timeline is %+v", d.Device, v)
			}
		}
	}
	return devices
}

// moments returns the reserved and the allocated bytes at each event.
func (h *viewerHistory) moments(t *testing.T) (list [][2]uint64) {
	t.Helper()
	for _, text := range h.Events {
		var allocated, reserved uint64
		numbers := bytesText.FindAllStringSubmatch(strings.SplitN(text, "\n", 2)[0], -1)
		if len(numbers) != 2 {
			t.Fatalf("an event without totals: %q", text)
		}
		for i, to := range []*uint64{&allocated, &reserved} {
			n, err := strconv.ParseUint(numbers[i][1], 10, 64)
			check(t, err)
			*to = n
		}
		list = append(list, [2]uint64{reserved, allocated})
	}
	return list
}

var bytesText = regexp.MustCompile(`\((\d+) bytes\)`)

// drawn returns the segments and the blocks of a drawing. Each block comes twice: with what rounding adds to it.
func drawn(texts []string) (segments, blocks []string) {
	for _, text := range texts {
		switch {
		case strings.Contains(text, ": segment "):
			segments = append(segments, text)
		case !strings.HasPrefix(text, "Free space"):
			blocks = append(blocks, text)
		}
	}
	return segments, blocks
}

// compare compares each moment that the viewer draws with sums over the events of the snapshot.
func (d *viewerDevice) compare(t *testing.T, s *vizSnapshot) {
	t.Helper()
	totals, begun, whole := s.moments(d.Device)
	var peaks [2]uint64
	for i := range totals {
		peaks = [2]uint64{max(peaks[0], totals[i][0]), max(peaks[1], totals[i][1])}
	}
	if got := d.History.moments(t); !slices.Equal(got, totals) {
		t.Errorf("device %d: the viewer draws %d moments, want %d", d.Device, len(got), len(totals))
	}
	segments, blocks := drawn(d.History.Last)
	active := 0
	for _, one := range s.Segments {
		if one.Device != d.Device {
			continue
		}
		for _, b := range one.Blocks {
			if b.State == "active_allocated" {
				active++
			}
		}
	}
	if len(d.History.Last) != len(segments)+2*active || len(blocks) != active {
		t.Errorf("device %d: the viewer draws %d segments, %d blocks, want %d blocks", d.Device, len(segments),
			len(blocks), active)
	}
	if slices.ContainsFunc(s.events(d.Device), func(e vizEvent) bool { return e.Action == "segment_map" }) {
		// The timeline of segments knows nothing of these.
		whole, peaks[0] = len(d.Cached.Shapes)-1, d.PeakReserved
	}
	if len(d.Memory.Shapes) != begun+1 || len(d.Cached.Shapes) != whole+1 {
		t.Errorf("device %d: the timelines have %d and %d shapes, want %d, %d", d.Device, len(d.Memory.Shapes),
			len(d.Cached.Shapes), begun+1, whole+1)
	}
	if d.PeakAllocated != peaks[1] || d.PeakReserved != peaks[0] {
		t.Errorf("device %d: the peaks are %d and %d, want %d", d.Device, d.PeakReserved, d.PeakAllocated, peaks)
	}
}

// TestViewerEqualsNaiveFigures compares every moment that the viewer draws with sums over the events of the snapshot,
// and the last one with the lives of the fleet.
func TestViewerEqualsNaiveFigures(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8)
	for _, host := range []string{"gpu-1", "gpu-2"} {
		for _, pid := range []uint32{100, 101} {
			data := exported(t, "memory-viz", f.record(), "-o", "-", "--host", host, "--pid", fmt.Sprint(pid))
			devices := viewed(t, data)
			var s vizSnapshot
			check(t, json.Unmarshal(unpickled(t, data), &s))
			if len(devices) != 1 || len(s.DeviceTraces) != 1 {
				t.Fatalf("%d devices", len(devices))
			}
			devices[0].compare(t, &s)
			reserved, allocated := s.totals(t)
			if totals, _, _ := s.moments(0); totals[len(totals)-1] != [2]uint64{reserved, allocated} {
				t.Errorf("%s/%d ends with %d, want %d, %d", host, pid, totals[len(totals)-1], reserved, allocated)
			}
			segments, _ := drawn(devices[0].History.Last)
			if live := f.liveBytes(host, pid); reserved < live || len(segments) != len(s.Segments) {
				t.Errorf("%s/%d: %d bytes in %d segments, at least %d live", host, pid, reserved, len(segments), live)
			}
		}
	}
}

// liveBytes returns the driver memory that a process has at the end.
func (f *fleet) liveBytes(host string, pid uint32) (bytes uint64) {
	for _, l := range f.lives {
		if l.host == host && l.pid == pid && l.until == 0 {
			bytes += l.bytes
		}
	}
	return bytes
}

// vizEvent is an event of a trace.
type vizEvent struct {
	Action     string
	Addr, Size uint64
	Stream     *int
	TimeUS     int64 `json:"time_us"`
	Frames     []vizFrame
}

// events returns the events of a device as the viewer shows them: both parts of a free are one.
func (s *vizSnapshot) events(device int) []vizEvent {
	return slices.DeleteFunc(slices.Clone(s.DeviceTraces[device]), func(e vizEvent) bool {
		return e.Action == "free_requested"
	})
}

// moments returns the reserved and the allocated bytes after each event, and the numbers of blocks and segments. A
// block that is freed, and was not allocated, was live before the first event.
func (s *vizSnapshot) moments(device int) (list [][2]uint64, blocks, segments int) {
	var now [2]uint64
	type place struct {
		of   int
		addr uint64
	}
	live := map[place]bool{}
	for _, e := range s.events(device) {
		at := place{0, e.Addr}
		if !strings.HasPrefix(e.Action, "segment") {
			at.of = 1
		}
		freed := slices.Contains([]string{"segment_free", "segment_unmap", "free_completed"}, e.Action)
		before := freed && !live[at]
		if live[at] = !freed; before {
			for i := range list {
				list[i][at.of] += e.Size
			}
			now[at.of] += e.Size
		}
		switch {
		case freed:
			now[at.of] -= e.Size
		default:
			now[at.of] += e.Size
		}
		if before || !freed {
			segments += 1 - at.of
			blocks += at.of
		}
		list = append(list, now)
	}
	for _, one := range s.Segments {
		if one.Device == device && !live[place{0, one.Address}] { // live from before the first event to the end
			segments++
			for i := range list {
				list[i][0] += one.TotalSize
			}
		}
	}
	return list, blocks, segments
}

// pools is a process that allocates on two GPUs, and from a pool on a CUDA stream.
func pools(t *testing.T) string {
	t.Helper()
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	p.Alloc(7, 0x1000000, 4<<20, 1e9, 5)
	p.Call("cuMemAllocAsync", 7, schema.Memory{Time: 2e9, Duration: 5, Ptr: 0x2000000, Bytes: 8 << 20, Aux: 0x5500})
	p.Call("cuMemAllocAsync", 7, schema.Memory{Time: 3e9, Duration: 5, Ptr: 0x3000000, Bytes: 1 << 20, Aux: 0x6600})
	p.Call("cuMemFreeAsync", 7, schema.Memory{Time: 4e9, Duration: 5, Ptr: 0x3000000, Aux: 0x5500})
	p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 1}
	p.Alloc(7, 0x9000000, 16<<20, 5e9, 5)
	f := &fleet{t: t}
	f.add(schema.KindMemory, h.Message())
	return f.record()
}

// TestSegmentsHaveDeviceAndStream reads streams and devices with Python and, if it is there, with the viewer.
func TestSegmentsHaveDeviceAndStream(t *testing.T) {
	t.Parallel()
	data := exported(t, "memory-viz", pools(t), "-o", "-")
	var s vizSnapshot
	check(t, json.Unmarshal(unpickled(t, data), &s))
	var got []string
	for _, one := range s.Segments {
		got = append(got, fmt.Sprintf("%d %#x %d %#x %d", one.Device, one.Address, one.TotalSize, *one.Stream,
			one.AllocatedSize))
	}
	for device, trace := range s.DeviceTraces {
		for _, e := range trace {
			got = append(got, fmt.Sprintf("%d %s %#x %#x", device, e.Action, e.Addr, *e.Stream))
		}
	}
	want := []string{
		"0 0x1000000 4194304 0x0 0", "0 0x2000000 8388608 0x5500 0", "1 0x9000000 16777216 0x0 0",
		"0 segment_alloc 0x1000000 0x0", "0 segment_alloc 0x2000000 0x5500", "0 segment_alloc 0x3000000 0x6600",
		"0 segment_free 0x3000000 0x6600", "1 segment_alloc 0x9000000 0x0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	devices := viewed(t, data)
	if len(devices) != 2 || devices[0].PeakReserved != 13<<20 {
		t.Fatalf("the viewer shows %+v", devices)
	}
	for i := range devices {
		devices[i].compare(t, &s)
	}
	segments, _ := drawn(devices[0].History.Last) // the smallest first; streams have numbers in the order of the trace
	if shape := devices[0].Cached.Shapes[0]; len(segments) != 2 || !strings.Contains(segments[0], "(stream 0)") ||
		!strings.Contains(segments[1], "(stream 1)") || !strings.Contains(shape, "thread train:7:cuMemAlloc_v2") {
		t.Errorf("the viewer shows %q, %q", segments, shape)
	}
}

// TestFramesAreCallStacks exports what Nsight Systems recorded: the viewer shows functions and modules.
func TestFramesAreCallStacks(t *testing.T) {
	t.Parallel()
	path, _ := nsightExport(t, 3)
	var s vizSnapshot
	check(t, json.Unmarshal(unpickled(t, exported(t, "memory-viz", path, "-o", "-")), &s))
	var got []string
	for _, one := range s.Segments {
		got = append(got, fmt.Sprint(one.Frames))
	}
	want := []string{"[{libcudart.so cudaMalloc 0} {train load(Model&) 0} {train main 0}]",
		"[{libcudart.so cudaMalloc 0} {train step(Batch&) 0} {train main 0}]"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestViewerOpensArbitraryActions has blocks and segments that overlap, that were live before, and whose begin or end
// was lost.
func TestViewerOpensArbitraryActions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 4))
		v := &memoryViz{frames: []frame{{thread: "train", tid: 7, symbol: "malloc"}},
			names: map[schema.ProcessID]string{{}: ""}}
		for device := range uint16(2) {
			for at := range int64(60) {
				a := action{at: at * 1000, addr: 1 + rng.Uint64N(200), bytes: 1 + rng.Uint64N(20),
					verb: verb(rng.IntN(4)), vmm: device == 0 && rng.IntN(3) == 0, device: device}
				if at < 10 {
					a.verb, a.known = segmentAlloc, true
				}
				v.actions = append(v.actions, a)
			}
		}
		var out bytes.Buffer
		v.out = &out
		check(t, v.finish())
		devices := viewed(t, out.Bytes())
		var s vizSnapshot
		check(t, json.Unmarshal(unpickled(t, out.Bytes()), &s))
		for i := range devices {
			devices[i].compare(t, &s)
		}
	}
}

// TestViewerOpensSnapshotWithoutEvents has memory from before the range alone.
func TestViewerOpensSnapshotWithoutEvents(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := &memoryViz{out: &out, frames: []frame{{thread: "train"}}, names: map[schema.ProcessID]string{{}: ""},
		actions: []action{{addr: 0x1000, bytes: 1 << 20, verb: segmentAlloc, known: true}}}
	check(t, v.finish())
	devices := viewed(t, out.Bytes())
	if len(devices) != 1 || len(devices[0].History.Events) != 0 || len(devices[0].History.Last) != 1 ||
		len(devices[0].Cached.Shapes) != 2 {
		t.Errorf("the viewer shows %+v", devices)
	}
}

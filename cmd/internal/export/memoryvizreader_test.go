package export

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// viewerDevice is what PyTorch's viewer computes of one device.
type viewerDevice struct {
	Events, Segments, Blocks int
	Totals                   [][2]uint64 // reserved and allocated after each event
	PeakAllocated            uint64      `json:"peak_allocated"`
	PeakReserved             uint64      `json:"peak_reserved"`
	Streams                  []int
	First                    string
}

// viewed lets PyTorch's MemoryViz.js read a snapshot. The file is not part of gputap.
func viewed(t *testing.T, snapshot []byte) (devices []viewerDevice) {
	t.Helper()
	viewer := os.Getenv("GPUTAP_MEMORYVIZ_JS")
	if viewer == "" {
		t.Skip("needs GPUTAP_MEMORYVIZ_JS, the path of torch/utils/viz/MemoryViz.js of PyTorch")
	}
	module, err := os.ReadFile("testdata/readers/memoryviz.mjs")
	check(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot.pickle")
	check(t, os.WriteFile(path, snapshot, 0o600))
	check(t, json.Unmarshal(runNode(t, dir, string(module), viewer, path), &devices))
	return devices
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
			got, totals := devices[0], s.moments()
			reserved, allocated := s.totals(t)
			if !slices.Equal(got.Totals, totals) || totals[len(totals)-1] != [2]uint64{reserved, allocated} {
				t.Errorf("%s/%d: the viewer draws %d moments, want %d", host, pid, len(got.Totals), len(totals))
			}
			peak := func(i int) (most uint64) {
				for _, moment := range totals {
					most = max(most, moment[i])
				}
				return most
			}
			if got.PeakReserved != peak(0) || got.PeakAllocated != peak(1) {
				t.Errorf("%s/%d: the peaks are %d and %d, want %d, %d", host, pid, got.PeakReserved, got.PeakAllocated,
					peak(0), peak(1))
			}
			if live := f.liveBytes(host, pid); reserved < live || got.Segments != len(s.Segments) {
				t.Errorf("%s/%d: %d bytes in %d segments, at least %d live", host, pid, reserved, got.Segments, live)
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

// moments returns what is reserved and allocated after each event. The viewer shows both parts of a free as one.
func (s *vizSnapshot) moments() (list [][2]uint64) {
	var now [2]uint64
	for _, e := range s.DeviceTraces[0] {
		switch e.Action {
		case "segment_alloc", "segment_map":
			now[0] += e.Size
		case "segment_free", "segment_unmap":
			now[0] -= e.Size
		case "alloc":
			now[1] += e.Size
		case "free_completed":
			now[1] -= e.Size
		case "free_requested":
			continue
		}
		list = append(list, now)
	}
	return list
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
	if len(devices) != 2 || devices[0].PeakReserved != 13<<20 || devices[1].Totals[0] != [2]uint64{16 << 20, 0} ||
		!slices.Equal(devices[0].Streams, []int{0, 1}) ||
		!strings.Contains(devices[0].First, "thread train:7:cuMemAlloc_v2") {
		t.Errorf("the viewer shows %+v", devices)
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

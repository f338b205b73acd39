package stub

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Image holds the totals of one executed program of one process. A bytes figure without another word is of GPU memory.
type Image struct {
	PID             uint32          `json:"pid"`
	Loaded          uint64          `json:"loaded"` // boot-time ns at which it loaded the driver
	LiveBytes       uint64          `json:"live_bytes"`
	LiveAllocations uint64          `json:"-"`
	Calls           map[string]Call `json:"calls"` // by symbol; those that were made

	HostBytes, HostAllocations       uint64            `json:"-"` // live
	ContextBytes, ContextAllocations uint64            `json:"-"` // freed with their context
	Holders                          uint64            `json:"-"` // opened and not closed
	Classes                          map[string]uint64 `json:"-"` // live bytes
	Cards                            map[string]uint64 `json:"-"` // live bytes by UUID
	Kernels                          map[string]uint64 `json:"-"` // launches by mangled name
}

// Call counts the calls of one function.
type Call struct {
	OK     uint64 `json:"ok"`
	Failed uint64 `json:"failed,omitempty"`
	Bytes  uint64 `json:"-"` // of the ok calls
	BusyNS uint64 `json:"-"` // in synchronous copies
}

// classes are the memory classes in the order of enum stub_class.
var classes = [...]string{"device", "managed", "pool", "array", "vmm", "graph", "pinned", "registered"}

// layout is struct stub_truth of producer/testdata/stub.h.
type layout struct {
	Magic                      [8]byte
	Version, PID               uint32
	LiveBytes, LiveAllocations uint64
	PeakBytes                  uint64
	HostBytes, HostAllocations uint64
	CallsUsed, _               uint32
	Calls                      [320]struct {
		Symbol [48]byte
		Call   Call
	}
	Kernels [128]struct {
		Name     [96]byte
		Launches uint64
	}
	Classes                                   [len(classes)]uint64
	ContextBytes, ContextAllocations, Holders uint64
	Cards                                     [2]struct {
		UUID      [48]byte
		LiveBytes uint64
	}
}

// Images reads the stub's totals from dir, the value of GPUTAP_STUB_TRUTH, oldest image first. It leaves out images
// without calls, and those whose file is not complete yet.
func Images(dir string) ([]Image, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the stub's totals: %w", err)
		}
		var l layout
		if _, err := binary.Decode(data, binary.LittleEndian, &l); err != nil || text(l.Magic[:]) != "GPUTRUTH" {
			continue // not complete yet
		}
		i := l.image()
		_, loaded, _ := strings.Cut(filepath.Base(name), ".")
		if i.Loaded, err = strconv.ParseUint(loaded, 10, 64); err != nil {
			return nil, fmt.Errorf("read the stub's totals: name of %s: %w", name, err)
		}
		if len(i.Calls) > 0 {
			images = append(images, i)
		}
	}
	slices.SortFunc(images, func(a, b Image) int { return cmp.Compare(a.Loaded, b.Loaded) })
	return images, nil
}

func (l *layout) image() Image {
	i := Image{
		PID: l.PID, LiveBytes: l.LiveBytes, LiveAllocations: l.LiveAllocations, Calls: map[string]Call{},
		HostBytes: l.HostBytes, HostAllocations: l.HostAllocations,
		ContextBytes: l.ContextBytes, ContextAllocations: l.ContextAllocations, Holders: l.Holders,
		Classes: map[string]uint64{}, Cards: map[string]uint64{}, Kernels: map[string]uint64{},
	}
	for _, c := range l.Calls[:min(int(l.CallsUsed), len(l.Calls))] {
		if c.Call.OK+c.Call.Failed > 0 {
			i.Calls[text(c.Symbol[:])] = c.Call
		}
	}
	for _, k := range l.Kernels {
		if name := text(k.Name[:]); name != "" {
			i.Kernels[name] = k.Launches
		}
	}
	for class, n := range l.Classes {
		if n > 0 {
			i.Classes[classes[class]] = n
		}
	}
	for _, c := range l.Cards {
		if c.LiveBytes > 0 {
			i.Cards[text(c.UUID[:])] = c.LiveBytes
		}
	}
	return i
}

// text returns a zero-terminated string.
func text(data []byte) string {
	t, _, _ := bytes.Cut(data, []byte{0})
	return string(t)
}

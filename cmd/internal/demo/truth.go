package demo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// truth holds the totals that the stub driver counted in one image of one process. Its file has the layout of struct
// stub_truth in producer/testdata/stub.h. It contains no figures of gputap.
type truth struct {
	pid             uint32
	loaded          uint64 // boot-time ns at which the image loaded the driver
	liveBytes       uint64
	liveAllocations uint64
	peakBytes       uint64
	calls           map[string]truthCall
	kernels         map[string]uint64

	hostBytes, hostAllocations       uint64
	classes                          map[string]uint64 // live bytes
	contextBytes, contextAllocations uint64            // freed with their context
	holders                          uint64
	cards                            map[string]uint64 // live bytes by UUID
}

type truthCall struct {
	ok, failed, bytes, busyNS uint64
}

const (
	truthBytes   = 39176
	truthCalls   = 64
	truthKernels = 25664
	truthClasses = 38976
	truthContext = 39040
	truthCards   = 39064
)

// truthClassWords are the memory classes in the order of enum stub_class.
var truthClassWords = []string{"device", "managed", "pool", "array", "vmm", "graph", "pinned", "registered"}

// readTruth reads every file of a directory, oldest image first. It leaves out images that called nothing.
func readTruth(dir string) ([]truth, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the stub's totals: %w", err)
	}
	var all []truth
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the stub's totals: %w", err)
		}
		t, err := parseTruth(e.Name(), data)
		if err != nil {
			return nil, fmt.Errorf("read the stub's totals in %s: %w", e.Name(), err)
		}
		if len(t.calls) > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b truth) int { return int(int64(a.loaded) - int64(b.loaded)) })
	return all, nil
}

func parseTruth(name string, data []byte) (truth, error) {
	if len(data) != truthBytes || !bytes.HasPrefix(data, []byte("GPUTRUTH")) {
		return truth{}, fmt.Errorf("not a totals file (%d bytes)", len(data))
	}
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	str := func(at, n int) string {
		s, _, _ := bytes.Cut(data[at:at+n], []byte{0})
		return string(s)
	}
	_, loaded, _ := strings.Cut(name, ".")
	t := truth{
		pid: binary.LittleEndian.Uint32(data[12:]), liveBytes: u(16), liveAllocations: u(24), peakBytes: u(32),
		calls: map[string]truthCall{}, kernels: map[string]uint64{}, hostBytes: u(40), hostAllocations: u(48),
		contextBytes: u(truthContext), contextAllocations: u(truthContext + 8), holders: u(truthContext + 16),
		classes: map[string]uint64{}, cards: map[string]uint64{},
	}
	t.loaded, _ = strconv.ParseUint(loaded, 10, 64)
	for i := range int(min(binary.LittleEndian.Uint32(data[56:]), 320)) {
		at := truthCalls + 80*i
		c := truthCall{u(at + 48), u(at + 56), u(at + 64), u(at + 72)}
		if c.ok+c.failed > 0 {
			t.calls[str(at, 48)] = c
		}
	}
	for i := range 128 {
		at := truthKernels + 104*i
		if name := str(at, 96); name != "" {
			t.kernels[name] = u(at + 96)
		}
	}
	for i, class := range truthClassWords {
		if n := u(truthClasses + 8*i); n > 0 {
			t.classes[class] = n
		}
	}
	for i := range 2 {
		at := truthCards + 56*i
		if n := u(at + 48); n > 0 {
			t.cards[str(at, 48)] = n
		}
	}
	return t, nil
}

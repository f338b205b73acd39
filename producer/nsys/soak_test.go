//go:build soak

package nsys_test

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/gputap/gputap/producer/nsys"
)

// peakMemory returns the most bytes of memory that the process held since the last call with reset.
func peakMemory(t *testing.T, reset bool) int {
	t.Helper()
	if reset {
		debug.FreeOSMemory()
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(read(t, "/proc/self/status"))
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestMemoryFollowsLiveAllocations converts exports of half a million and of five million memory events with equally
// many live allocations: ten times as many rows need no more memory.
func TestMemoryFollowsLiveAllocations(t *testing.T) {
	peaks := map[int]int{}
	for _, events := range []int{500_000, 5_000_000} {
		x := generate(t, releases[1], plan{seed: 9, events: events, live: 20_000})
		info, err := os.Stat(x.path)
		if err != nil {
			t.Fatal(err)
		}
		before := peakMemory(t, true)
		began := time.Now()
		path, s, err := convert(t, x.path, nsys.Options{})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		peaks[events] = peakMemory(t, false)
		out, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%d memory events, export %d MiB, recording %d MiB: %v, peak %d MiB (%d MiB before), %v\n", events,
			info.Size()>>20, out.Size()>>20, took.Round(time.Millisecond), peaks[events]>>20, before>>20, s.Events)
		x.checkSummary(t, &s)
		x.checkMemory(t, folded(t, path).Report())
	}
	if few, many := peaks[500_000], peaks[5_000_000]; many > few+few/2 {
		t.Errorf("peak memory %d MiB for ten times the rows, %d MiB before", many>>20, few>>20)
	}
}

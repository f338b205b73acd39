//go:build bpf

package bpf

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// TestRingsStayWithinTheirBudget maps the rings that a machine with so many CPUs has. Linux maps the data of a ring
// twice, so twice the budget may be resident.
func TestRingsStayWithinTheirBudget(t *testing.T) {
	const budget = 32 << 20
	for _, cpus := range []int{1, 2, 16, 32, 128, 256} {
		t.Run(fmt.Sprint(cpus), func(t *testing.T) {
			d := divide(budget, cpus, true)
			before := residentRings(t)
			mapRing(t, d.control)
			mapRing(t, d.tensors)
			for range d.bulkRings {
				mapRing(t, d.bulk)
			}
			bytes := residentRings(t) - before
			t.Logf("%d CPUs: control ring of %d MiB, tensor ring of %d MiB, %d bulk rings of %d MiB, %.1f MiB resident",
				cpus, d.control>>20, d.tensors>>20, d.bulkRings, d.bulk>>20, float64(bytes)/(1<<20))
			data := 2 * (d.control + d.tensors + d.bulkRings*d.bulk)
			pages := 2 * (d.bulkRings + 2) * os.Getpagesize() // of the positions
			if bytes < data || bytes > data+pages || data > 2*budget {
				t.Errorf("%d bytes are resident, of rings of %d", bytes, data/2)
			}
		})
	}
}

func mapRing(t *testing.T, bytes int) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(bytes)})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = m.Close() })
	ring, err := OpenRing(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Close)
}

// residentRings returns the bytes of rings that this process has resident.
func residentRings(t *testing.T) (bytes int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ring := false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if !strings.HasSuffix(fields[0], ":") {
			ring = strings.Contains(line, "bpf-map")
		}
		if ring && fields[0] == "Rss:" {
			var kib int
			if _, err := fmt.Sscan(fields[1], &kib); err != nil {
				t.Fatal(err)
			}
			bytes += kib << 10
		}
	}
	return bytes
}

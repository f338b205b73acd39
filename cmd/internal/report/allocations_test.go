package report

import (
	"strings"
	"testing"
	"time"
)

// TestLargestCollapsesEqualRows: equal allocations of one thread are one row with the address and age of the oldest.
func TestLargestCollapsesEqualRows(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	one := func(address string, bytes uint64, tid uint32, age time.Duration) Allocation {
		return Allocation{Address: address, Bytes: bytes, Class: "device", GPU: "GPU-1", TID: tid, Thread: "w",
			Since: now.Add(-age)}
	}
	p := &Process{Largest: []Allocation{one("0x9", 3<<20, 8, time.Second), one("0x1", 2<<20, 7, time.Second),
		one("0x2", 2<<20, 8, time.Minute), one("0x3", 2<<20, 7, time.Hour)}}
	var out strings.Builder
	writeLargest(&out, p, now)
	var got []string
	for _, line := range strings.Split(out.String(), "\n")[1:] {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"0x9 3.00 MiB device GPU-1 thread 8 w, 1s old",
		"0x3 2 × 2.00 MiB device GPU-1 thread 7 w, oldest 1h0m0s", "0x2 2.00 MiB device GPU-1 thread 8 w, 1m0s old", ""}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

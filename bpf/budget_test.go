package bpf

import (
	"os"
	"testing"
)

func TestBudgetIsDividedAmongCPUs(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{MinRingBytes, 5e6, 32 << 20, 48 << 20, 1 << 30} {
		for cpus := 1; cpus <= 256; cpus++ {
			d := divide(budget, cpus)
			if sum := d.control + d.bulkRings*d.bulk; sum > budget || sum <= budget/2 {
				t.Errorf("%d bytes, %d CPUs: rings of %d bytes", budget, cpus, sum)
			}
			for _, size := range []int{d.control, d.bulk} {
				if size < leastBulk || size&(size-1) != 0 || size%os.Getpagesize() != 0 {
					t.Errorf("%d bytes, %d CPUs: a ring of %d bytes", budget, cpus, size)
				}
			}
			if d.control <= budget/8 {
				t.Errorf("%d bytes, %d CPUs: a control ring of %d bytes", budget, cpus, d.control)
			}
			used := make([]int, d.bulkRings) // number of CPUs of each ring
			for cpu := range cpus {
				used[d.ringOf(cpu)]++
			}
			for ring, n := range used {
				if n == 0 || n > used[0] || used[0]-n > 1 {
					t.Errorf("%d bytes, %d CPUs: ring %d has %d CPUs, ring 0 %d", budget, cpus, ring, n, used[0])
				}
				if records := n * int(d.wakeEvery()); records > wakeEvery || records < 1 {
					t.Errorf("%d bytes, %d CPUs: a wake-up after %d records of a ring", budget, cpus, records)
				}
			}
		}
	}
}

func TestDefaultBudgetOnUsualMachines(t *testing.T) {
	t.Parallel()
	for _, want := range []division{
		{cpus: 1, control: 8 << 20, bulk: 16 << 20, bulkRings: 1},
		{cpus: 2, control: 8 << 20, bulk: 8 << 20, bulkRings: 2},
		{cpus: 8, control: 8 << 20, bulk: 2 << 20, bulkRings: 8},
		{cpus: 16, control: 8 << 20, bulk: 1 << 20, bulkRings: 16},
		{cpus: 32, control: 8 << 20, bulk: 1 << 20, bulkRings: 24},
		{cpus: 256, control: 8 << 20, bulk: 1 << 20, bulkRings: 24},
	} {
		if got := divide(32<<20, want.cpus); got != want {
			t.Errorf("%d CPUs: %+v, want %+v", want.cpus, got, want)
		}
	}
}

func TestRingSize(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	for n, want := range map[int]int{
		0: page, 1: page, 2*page - 1: page, 8 << 20: 8 << 20, 12 << 20: 8 << 20, 1 << 40: mostRing,
	} {
		if got := ringSize(n); got != want {
			t.Errorf("%d becomes %d, want %d", n, got, want)
		}
	}
}

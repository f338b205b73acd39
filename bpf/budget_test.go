package bpf

import (
	"os"
	"testing"
)

func TestBudgetIsDividedAmongCPUs(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{MinRingBytes, 5e6, 32 << 20, 48 << 20, 1 << 30} {
		for cpus := 1; cpus <= 256; cpus++ {
			d := divide(budget, cpus, false)
			if sum := d.control + d.bulkRings*d.bulk; sum > budget || sum <= budget/2 || d.tensors != os.Getpagesize() {
				t.Errorf("%d bytes, %d CPUs: rings of %d bytes, and one of %d", budget, cpus, sum, d.tensors)
			}
			checkTensors(t, budget, cpus)
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

// checkTensors checks the rings of a budget when tensors are wanted.
func checkTensors(t *testing.T, budget, cpus int) {
	t.Helper()
	d := divide(budget, cpus, true)
	if sum := d.control + d.bulkRings*d.bulk + d.tensors; sum > budget || sum <= budget/2 || d.bulk < leastBulk {
		t.Errorf("%d bytes, %d CPUs: %+v", budget, cpus, d)
	}
	if d.tensors <= budget/16 {
		t.Errorf("%d bytes, %d CPUs: a tensor ring of %d bytes", budget, cpus, d.tensors)
	}
	records := d.tensors / 88 // 80 bytes and their head
	if n := int(d.tensorWakeEvery()); n < 1 || n > wakeEvery || 16*n > records {
		t.Errorf("%d bytes, %d CPUs: a wake-up after %d of %d records", budget, cpus, n, records)
	}
}

func TestDefaultBudgetOnUsualMachines(t *testing.T) {
	t.Parallel()
	const page, mib = 4 << 10, 1 << 20
	for _, want := range []division{
		{cpus: 1, control: 8 * mib, bulk: 16 * mib, bulkRings: 1, tensors: page},
		{cpus: 2, control: 8 * mib, bulk: 8 * mib, bulkRings: 2, tensors: page},
		{cpus: 8, control: 8 * mib, bulk: 2 * mib, bulkRings: 8, tensors: page},
		{cpus: 16, control: 8 * mib, bulk: 1 * mib, bulkRings: 16, tensors: page},
		{cpus: 32, control: 8 * mib, bulk: 1 * mib, bulkRings: 24, tensors: page},
		{cpus: 256, control: 8 * mib, bulk: 1 * mib, bulkRings: 24, tensors: page},
		{cpus: 2, control: 8 * mib, bulk: 8 * mib, bulkRings: 2, tensors: 4 * mib},
		{cpus: 16, control: 8 * mib, bulk: 1 * mib, bulkRings: 16, tensors: 4 * mib},
		{cpus: 32, control: 8 * mib, bulk: 1 * mib, bulkRings: 20, tensors: 4 * mib},
	} {
		if want.tensors == page {
			want.tensors = os.Getpagesize()
		}
		if got := divide(32<<20, want.cpus, want.tensors > mib); got != want {
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

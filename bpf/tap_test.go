package bpf

import "testing"

func TestBulkRingsFitTheNumberOfCPUs(t *testing.T) {
	for cpus, want := range map[int]uint32{
		1: 8 << 20, 2: 8 << 20, 32: 8 << 20, 64: 4 << 20, 128: 2 << 20, 224: 2 << 20, 256: 1 << 20, 1024: 1 << 20,
	} {
		if got := ringSize(bulkRingBytes(cpus)); got != want {
			t.Errorf("%d CPUs: %d bytes, want %d", cpus, got, want)
		}
	}
}

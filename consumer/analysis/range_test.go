package analysis

import (
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
)

// apply applies the events of a host that are not applied yet.
func apply(t *testing.T, fold *leak.Tracker, h *consumertest.Host) {
	t.Helper()
	if err := fold.Apply(h.Batch()); err != nil {
		t.Fatal(err)
	}
}

// only returns the one process of a Journal.
func only(t *testing.T, j *Journal) *Process {
	t.Helper()
	all, err := j.Processes()
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	return all[0]
}

// TestMemoryFromBeforeTheRange: it counts from the last event before the range, as one change.
func TestMemoryFromBeforeTheRange(t *testing.T) {
	t.Parallel()
	h, before := consumertest.Memory(t, "h"), leak.New(leak.Config{})
	p := h.Process(7, 1, "train")
	p.Alloc(7, 0x100, 100, 1000, 0).Alloc(7, 0x200, 70, 2000, 0).Alloc(7, 0x300, 5, 3000, 0).Free(7, 0x300, 4000, 0)
	apply(t, before, h)
	j := NewJournal("")
	defer j.Close()
	fold := consumertest.Restore(t, leak.New(leak.Config{OnMovement: j.Receiver()}), consumertest.Sections(t, before))
	fold.Live()
	p.Free(7, 0x100, 5000, 0).Alloc(7, 0x400, 1, 6000, 0)
	apply(t, fold, h)
	of := only(t, j)
	want := []point{{4000, 170}, {5000, 70}, {6000, 71}}
	if got := usageOf(t, of, nil); !slices.Equal(got, want) || !of.Partial() {
		t.Errorf("got %v, want %v", got, want)
	}
	peaks, err := of.Watermark()
	if err != nil || peaks[0].Bytes != 170 || peaks[0].Time.UnixNano()-offset != 4000 || len(peaks[0].Live) != 2 ||
		!peaks[0].Live[0].Before || peaks[0].Live[0].Time.UnixNano()-offset != 1000 {
		t.Errorf("the peak is %+v, %v", peaks, err)
	}
}

// TestEqualPeaksAndExec: the first of equal peaks counts. A process that calls exec has no memory; one that ends keeps
// what it had.
func TestEqualPeaksAndExec(t *testing.T) {
	t.Parallel()
	h, j := consumertest.Memory(t, "h"), NewJournal("")
	defer j.Close()
	fold := leak.New(leak.Config{OnMovement: j.Receiver()})
	h.Process(7, 1, "train").Alloc(7, 0x100, 100, 1000, 0).Free(7, 0x100, 2000, 0).Alloc(7, 0x100, 100, 3000, 0).
		Exec("other", 4000).Alloc(7, 0x100, 30, 5000, 0).Exit(6000)
	apply(t, fold, h)
	p := only(t, j)
	want := []point{{1000, 100}, {2000, 0}, {3000, 100}, {4000, 0}, {5000, 30}}
	if got := usageOf(t, p, nil); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	peaks, err := p.Watermark()
	if err != nil || peaks[0].Bytes != 100 || peaks[0].Time.UnixNano()-offset != 1000 {
		t.Errorf("the peak is %+v, %v", peaks, err)
	}
	leaks, err := p.Leakage()
	if err != nil || leaks[0].Bytes != 30 || p.Ended().UnixNano()-offset != 6000 {
		t.Errorf("%+v leak, ended %v, %v", leaks, p.Ended(), err)
	}
}

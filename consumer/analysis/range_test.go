package analysis

import (
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
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

// TestMemoryFromBeforeTheRange: it counts from the beginning of the range, as one change.
func TestMemoryFromBeforeTheRange(t *testing.T) {
	t.Parallel()
	for name, times := range map[string]struct{ begin, counts schema.KTime }{
		"no beginning":                             {0, 4000},
		"it begins before the last known event":    {3500, 4000},
		"it begins after an idle time":             {4700, 4700},
		"it begins after the first event in it":    {5500, 5000},
		"it begins after the last event in it":     {9000, 5000},
		"it begins at the first event in it":       {5000, 5000},
		"the clock of NATS is wrong":               {1, 4000},
		"it begins at the last event before it":    {4000, 4000},
		"the clock of NATS is years in the future": {1 << 58, 5000},
	} {
		t.Run(name, func(t *testing.T) { beforeTheRange(t, times.begin, int64(times.counts)) })
	}
}

func beforeTheRange(t *testing.T, begin schema.KTime, counts int64) {
	t.Helper()
	h, before := consumertest.Memory(t, "h"), leak.New(leak.Config{})
	p := h.Process(7, 1, "train")
	p.Alloc(7, 0x100, 100, 1000, 0).Alloc(7, 0x200, 70, 2000, 0).Alloc(7, 0x300, 5, 3000, 0).Free(7, 0x300, 4000, 0)
	apply(t, before, h)
	j := NewJournal("")
	defer j.Close()
	fold := consumertest.Restore(t, leak.New(leak.Config{OnMovement: j.Receiver()}), consumertest.Sections(t, before))
	since := time.Time{}
	if begin > 0 {
		since = time.Unix(0, offset+int64(begin))
	}
	fold.Live(since)
	p.Free(7, 0x100, 5000, 0).Alloc(7, 0x400, 1, 6000, 0)
	apply(t, fold, h)
	of := only(t, j)
	want := []point{{counts, 170}, {5000, 70}, {6000, 71}}
	if got := usageOf(t, of, nil); !slices.Equal(got, want) || !of.Partial() {
		t.Errorf("got %v, want %v", got, want)
	}
	peaks, err := of.Watermark()
	if err != nil || peaks[0].Bytes != 170 || peaks[0].Time.UnixNano()-offset != counts || len(peaks[0].Live) != 2 ||
		!peaks[0].Live[0].Before || peaks[0].Live[0].Time.UnixNano()-offset != 1000 {
		t.Errorf("the peak is %+v, %v", peaks, err)
	}
	allocated := uint64(0)
	if err := of.Allocations(func(_ *Group, bytes uint64) { allocated += bytes }); err != nil || allocated != 1 {
		t.Errorf("%d bytes were allocated in the range, want 1; %v", allocated, err)
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

// TestLastEventBeforeTheRangeIsAnAllocation: it is memory from before the range, as in a recording without messages.
func TestLastEventBeforeTheRangeIsAnAllocation(t *testing.T) {
	t.Parallel()
	h, before := consumertest.Memory(t, "h"), leak.New(leak.Config{})
	h.Process(7, 1, "train").Alloc(7, 0x100, 100, 1000, 0).Alloc(7, 0x200, 70, 4000, 0)
	apply(t, before, h)
	j := NewJournal("")
	defer j.Close()
	consumertest.Restore(t, leak.New(leak.Config{OnMovement: j.Receiver()}), consumertest.Sections(t, before)).
		Live(time.Time{})
	of := only(t, j)
	if got, want := usageOf(t, of, nil), []point{{4000, 170}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	peaks, err := of.Watermark()
	if err != nil || peaks[0].Bytes != 170 || !peaks[0].Live[0].Before || !peaks[0].Live[1].Before {
		t.Errorf("the peak is %+v, %v", peaks, err)
	}
	if err := of.Allocations(func(*Group, uint64) { t.Error("it was allocated in the range") }); err != nil {
		t.Error(err)
	}
}

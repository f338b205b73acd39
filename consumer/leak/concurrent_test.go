package leak

import (
	"sync"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// Every batch leaves ten allocations of one byte, so a reader that sees part of a batch sees another remainder.
func TestReadersSeeWholeBatches(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 1, "train")
	tracker := New(Config{})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				if got := tracker.Report().Totals.LiveBytes; got%10 != 0 {
					t.Errorf("%d bytes live in the middle of a batch", got)
				}
				tracker.Top(5)
				tracker.scrape()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range uint64(200) {
		for i := range uint64(10) {
			p.Alloc(uint32(n), 1+10*n+i, 1, schema.KTime(n), 1)
		}
		apply(t, tracker, h.Batch())
	}
	close(done)
	readers.Wait()
	if got := tracker.Report().Totals.LiveBytes; got != 2000 {
		t.Errorf("%d bytes live, want 2,000", got)
	}
}

// Slots of threads without live memory are reused; threads with live memory keep their names.
func TestSlotsOfIdleThreadsAreReused(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 1, "server").Alloc(7, 0x1, 1<<40, 1, 1)
	tracker := New(Config{})
	for tid := range uint32(20_000) {
		at := schema.KTime(10 + 10*tid)
		p.Alloc(100+tid, 0x1000, 64, at, 1).Free(100+tid, 0x1000, at+5, 1)
		if tid%100 == 99 {
			apply(t, tracker, h.Batch())
		}
	}
	if n := len(tracker.threads.slots); n > 2*minThreads {
		t.Errorf("%d slots for one thread with live memory", n)
	}
	if top := tracker.Top(1); top[0].TID != 7 {
		t.Errorf("thread %d made the largest allocation, want thread 7", top[0].TID)
	}
}

// For the race detector.
func TestSnapshotDuringReads(t *testing.T) {
	t.Parallel()
	tracker := shortKeep()
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					tracker.Report()
					tracker.Top(5)
					tracker.scrape()
				}
			}
		})
	}
	for _, step := range consumertest.Traffic(t, 2, 20) {
		consumertest.Take(t, tracker, step)
		saved := consumertest.Sections(t, tracker)
		consumertest.Restore(t, shortKeep(), saved)
	}
	close(stop)
	readers.Wait()
}

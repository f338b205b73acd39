package launch

import (
	"fmt"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
)

// The limit of waiting kernels covers all comms, also after a restore.
func TestWaitingKernelsAreRestored(t *testing.T) {
	t.Parallel()
	fold := New(Config{Keep: time.Minute, MaxKernels: 20})
	consumertest.Take(t, fold, consumertest.Traffic(t, 1, 120)...)
	again := consumertest.Restore(t, New(Config{Keep: time.Minute, MaxKernels: 20}), consumertest.Sections(t, fold))
	if got, want := again.byName.waiting, fold.byName.waiting; got != want || want == 0 {
		t.Errorf("%d kernels wait, want %d", got, want)
	}
}

// Hosts of several shards have more workloads than series. The limit holds, and no launch is lost.
func TestJoinedSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	joined := New(Config{})
	for _, host := range []string{"x", "y", "z"} {
		var events []event
		for i := range process.MaxSeries - 100 {
			events = append(events, event{pid: uint32(i), comm: fmt.Sprint("job", i), kernel: "k"})
		}
		fold := New(Config{})
		_ = fold.Apply(batch(t, host, 0, events...))
		consumertest.Restore(t, joined, consumertest.Sections(t, fold)[1:])
	}
	var sum uint64
	series := joined.workloads.Page()
	for _, n := range series {
		sum += n.kernels
	}
	if want := uint64(3 * (process.MaxSeries - 100)); len(series) != process.MaxSeries || sum != want {
		t.Errorf("%d series of %d launches, want %d of %d", len(series), sum, process.MaxSeries, want)
	}
}

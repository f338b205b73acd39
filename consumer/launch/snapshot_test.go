package launch

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

var update = flag.Bool("update", false, "write golden files")

func saved() *Histogram { return New(Config{Keep: time.Minute, MaxKernels: 20}) }

// view is all that a Histogram shows.
func view(tb testing.TB, fold *Histogram) []byte {
	text, err := json.MarshalIndent(fold.Report(), "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return append(text, consumertest.Page(tb, fold)...)
}

func TestResume(t *testing.T) {
	t.Run("recorded run", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Recorded(t), 9, saved, view)
	})
	t.Run("more than there are series", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Crowd(t), 4, saved, view)
		fold := saved()
		consumertest.Take(t, fold, consumertest.Crowd(t)...)
		if !strings.Contains(string(consumertest.Page(t, fold)), `comm="other"`) {
			t.Error("there was a series for all")
		}
	})
	for seed := range uint64(4) {
		t.Run("traffic", func(t *testing.T) {
			consumertest.Resumes(t, consumertest.Traffic(t, seed, 120), 9, saved, view)
		})
	}
}

func TestHostile(t *testing.T) {
	fold, steps := saved(), consumertest.Traffic(t, 3, 40)
	consumertest.Take(t, fold, steps[:30]...)
	consumertest.Hostile(t, consumertest.Sections(t, fold), saved, view, steps[30:]...)
}

func TestSplit(t *testing.T) {
	consumertest.Splits(t, consumertest.Traffic(t, 9, 200), saved, func(fold *Histogram, id snapshot.HostID) []byte {
		text, _ := json.MarshalIndent(slices.DeleteFunc(fold.Report(), func(a Process) bool {
			return a.ID.Cluster != id.Cluster || a.ID.Host != id.Host
		}), "", " ")
		return text
	})
}

func TestGoldenSnapshots(t *testing.T) {
	fold := saved()
	consumertest.Take(t, fold, consumertest.Traffic(t, 4, 24)...)
	consumertest.Golden(t, *update, int(form.Version), fold, saved, view)
}

func FuzzRestore(f *testing.F) { consumertest.FuzzRestore(f, saved, view) }

// The bound of kernels without a series goes on to be that of all comms.
func TestWaitingIsCounted(t *testing.T) {
	fold := saved()
	consumertest.Take(t, fold, consumertest.Traffic(t, 1, 120)...)
	again := consumertest.Restore(t, saved(), consumertest.Sections(t, fold))
	if got, want := again.byName.waiting, fold.byName.waiting; got != want || want == 0 {
		t.Errorf("%d kernels wait, want %d", got, want)
	}
}

// Hosts of several shards that come together have more workloads than there are series: the bound holds, and nothing is lost.
func TestSeriesOfSeveralShards(t *testing.T) {
	joined := New(Config{})
	for _, host := range []string{"x", "y", "z"} {
		var events []event
		for i := range maxSeries - 100 {
			events = append(events, event{pid: uint32(i), comm: fmt.Sprint("job", i), kernel: "k"})
		}
		fold := New(Config{})
		_ = fold.Apply(batch(t, host, 0, events...))
		consumertest.Restore(t, joined, consumertest.Sections(t, fold)[1:])
	}
	var sum uint64
	series, _ := joined.scrape()
	for _, n := range series {
		sum += n.kernels
	}
	if want := uint64(3 * (maxSeries - 100)); len(series) != maxSeries || sum != want {
		t.Errorf("%d series of %d launches, want %d of %d", len(series), sum, maxSeries, want)
	}
}

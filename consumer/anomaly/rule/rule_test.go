package rule

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// The median and the deviation equal those of the last 60 values, computed by sorting all of them.
func TestHistoryEqualsTheLastValues(t *testing.T) {
	t.Parallel()
	r, h, all := rand.New(rand.NewPCG(1, 2)), history{}, []float64{}
	middleOf := func(v []float64) float64 {
		v = slices.Clone(v)
		sort.Float64s(v)
		return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	}
	for range 500 {
		v := float64(r.IntN(1000))
		h.add(v)
		all = append(all, v)
		last := all[max(0, len(all)-60):]
		median := middleOf(last)
		var distances []float64
		near := 0
		for _, v := range last {
			distances = append(distances, math.Abs(v-median))
			if v >= 100 && v <= 700 {
				near++
			}
		}
		gotMedian, gotDeviation := h.median()
		if gotMedian != median || gotDeviation != middleOf(distances) || h.within(100, 700) != near {
			t.Fatalf("after %d values: %v %v %d, want %v %v %d", len(all), gotMedian, gotDeviation, h.within(100, 700),
				median, middleOf(distances), near)
		}
	}
}

// Windows are taken in order with what was added to them, unless one eight or more windows newer came before.
func TestOpenWindowsKeepWhatWasAdded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var o open[int]
		truth, newest := map[Index]int{}, Index(0)
		for next := Index(100); next < 160; next++ {
			for range r.IntN(5) {
				at := next + Index(r.IntN(12))
				newest = max(newest, at)
				if v := o.at(at); v != nil {
					*v++
					truth[at]++
				}
			}
			displaced := slices.ContainsFunc(slices.Collect(maps.Keys(truth)), func(i Index) bool {
				return i > next && (i-next)%maxOpen == 0
			})
			if got, known := o.take(next); known == displaced || known && got != truth[next] {
				t.Fatalf("window %d: %d, known %t; want %d, %t (newest %d)", next, got, known, truth[next], !displaced,
					newest)
			}
			maps.DeleteFunc(truth, func(i Index, _ int) bool {
				for later := range truth {
					if later > i && (later-i)%maxOpen == 0 {
						return true
					}
				}
				return i <= next
			})
		}
	}
}

// The bytes of live large allocations equal those of a map, and the count of entries that of all processes.
func TestLargeAllocationsEqualAMap(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	s := New(Config{}, alert.NewBook(alert.Config{Family: "anomaly"}), nil)
	procs, truth := []*Process{{}, {}, {}}, make([]map[uint64]uint64, 3)
	for i := range procs {
		procs[i].State.gpus, truth[i] = make([]gpu, 2), map[uint64]uint64{}
	}
	for range 5000 {
		i, key := r.IntN(3), r.Uint64N(50)
		switch r.IntN(20) {
		case 0:
			s.Release(procs[i])
			clear(truth[i])
		case 1, 2, 3, 4, 5, 6, 7, 8, 9:
			if _, want := truth[i][key]; s.Free(procs[i], key) != want {
				t.Fatalf("free of %d: want %t", key, want)
			}
			delete(truth[i], key)
		default:
			truth[i][key] = 1 + r.Uint64N(1000)
			s.Allocate(procs[i], key, truth[i][key], int(key%2))
		}
		entries := 0
		for j, p := range procs {
			var sum uint64
			for _, bytes := range truth[j] {
				sum += bytes
			}
			if entries += len(truth[j]); p.State.live() != sum {
				t.Fatalf("process %d holds %d, want %d", j, p.State.live(), sum)
			}
		}
		if s.entries != entries {
			t.Fatalf("%d entries, want %d", s.entries, entries)
		}
	}
}

// A state is refused if it could not have been saved.
func TestImpossibleStatesAreRefused(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*State{
		"an allocation on a GPU that is not listed": {large: large{1: {1, 0}}},
		"too many GPUs":      {gpus: make([]gpu, maxGPUs+1)},
		"too many failures":  {gpus: make([]gpu, 1), failures: make([]failure, maxFailures+1)},
		"too many routes":    {gpus: make([]gpu, 1), routes: make([]route, maxRoutes+1)},
		"too long a history": {launches: launchState{usual: history{values: make([]float32, 61)}}},
		"a value that is no number": {launches: launchState{usual: history{values: []float32{
			float32(math.NaN())}}}},
	} {
		w := &snapshot.Writer{}
		s.Code(&snapshot.Codec{Writer: w}, snapshot.HostID{})
		r := snapshot.NewReader(w.Data())
		e := &process.Entry[State]{}
		e.State.Code(&snapshot.Codec{Reader: r}, snapshot.HostID{})
		if r.Err() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestTimesHaveOneStyle(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		61 * time.Microsecond: "61 µs", 8130 * time.Microsecond: "8.13 ms", 250 * time.Millisecond: "250 ms",
		999_700 * time.Microsecond: "1 s", 2500 * time.Millisecond: "2.5 s",
	} {
		if got := secondsText(d); got != want {
			t.Errorf("%s is shown as %q, want %q", d, got, want)
		}
	}
}

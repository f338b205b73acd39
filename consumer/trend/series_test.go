package trend

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// change is one event of a replay: bytes allocated (since 0) or freed at a time.
type change struct {
	at, since schema.KTime
	bytes     int64
}

// replay computes the minimum of every window and the bytes that are live by window of birth, from all changes in the
// order of their records. late says for each change how many windows behind the newest one it was.
func replay(all []change, width schema.KTime) (minima map[uint64]int64, births map[uint64]int64, newest uint64) {
	minima, births = map[uint64]int64{}, map[uint64]int64{}
	lowers := make([]bool, len(all)) // whether a change may lower the minimum of its own window
	for i, c := range all {
		w := uint64(c.at / width)
		newest = max(newest, w)
		lowers[i] = w+1 >= newest
		if c.since == 0 {
			births[w] += c.bytes
		} else {
			births[uint64(c.since/width)] += c.bytes
		}
	}
	for w := uint64(0); w <= newest; w++ {
		level := int64(0)
		for _, c := range all {
			if uint64(c.at/width) < w {
				level += c.bytes
			}
		}
		minima[w] = level
		for i, c := range all {
			if uint64(c.at/width) == w {
				if level += c.bytes; lowers[i] {
					minima[w] = min(minima[w], level)
				}
			}
		}
	}
	return minima, births, newest
}

// TestMinimaAndSurvivorsEqualAReplay: events overlap, arrive late and leave windows empty.
func TestMinimaAndSurvivorsEqualAReplay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		width := schema.KTime(10 + rng.Uint64N(1000))
		now := schema.KTime(rng.Uint64N(5000))
		s := NewSeries(time.Duration(width), now)
		var all, live []change
		for range 400 {
			now += schema.KTime(rng.Uint64N(uint64(width) / 4))
			if rng.IntN(40) == 0 {
				now += width * schema.KTime(rng.Uint64N(4))
			}
			at := now - min(now, schema.KTime(rng.Uint64N(1+uint64(width)*uint64(rng.IntN(4))/2)))
			if n := len(live); n > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(n)
				born := live[i]
				live = slices.Delete(live, i, i+1)
				s.Remove(at, born.at, uint64(born.bytes))
				all = append(all, change{max(at, born.at), born.at, -born.bytes})
				continue
			}
			c := change{at: max(at, 1), bytes: int64(rng.Uint64N(1000))}
			s.Add(c.at, uint64(c.bytes))
			all, live = append(all, c), append(live, c)
		}
		check(t, s, all, width)
		check(t, again(t, s, live), all, width)
	}
}

func check(t *testing.T, s *Series, all []change, width schema.KTime) {
	t.Helper()
	minima, births, newest := replay(all, width)
	newest = max(newest, s.current)
	for w := max(s.first, newest-min(newest, slots-1)); w <= newest; w++ {
		if got, known := s.minimum(w); !known || int64(got) != minima[w] {
			t.Fatalf("window %d of %d: minimum %d (%t), want %d", w, newest, got, known, minima[w])
		}
		if got := s.births[w%slots]; int64(got) != births[w] {
			t.Fatalf("window %d of %d: %d bytes are still live, want %d", w, newest, got, births[w])
		}
	}
}

// again saves and restores a series.
func again(t *testing.T, s *Series, live []change) *Series {
	t.Helper()
	var w snapshot.Writer
	s.Code(&snapshot.Codec{Writer: &w}, 0)
	r := NewSeries(time.Duration(s.width), 0)
	in := snapshot.NewReader(w.Data())
	if r.Code(&snapshot.Codec{Reader: in}, 0); in.Err() != nil || in.Room(1) > 0 {
		t.Fatalf("restore: %v, %d bytes are left", in.Err(), in.Room(1))
	}
	for _, c := range live {
		r.Restore(c.at, uint64(c.bytes))
	}
	return r
}

func TestMoveChangesTheWindowOfBirth(t *testing.T) {
	t.Parallel()
	s := NewSeries(10, 5)
	s.Add(5, 100)
	s.Move(5, 37, 100)
	if s.births[0] != 0 || s.births[3] != 100 || s.current != 3 {
		t.Errorf("births %v in window %d", s.births[:4], s.current)
	}
	if s.Remove(38, 37, 100); s.births[3] != 0 || s.Live() != 0 {
		t.Errorf("%d bytes are live, births %v", s.Live(), s.births[:4])
	}
}

func TestGapsExcludeTheWindowsTheyTouch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		var g Gaps
		want := map[uint64]bool{}
		for range 20 {
			from := rng.Uint64N(3000)
			to := from + rng.Uint64N(100)*rng.Uint64N(2)
			g.Mark(10, schema.KTime(from), schema.KTime(to))
			for at := from; at <= to; at++ {
				want[at/10] = true
			}
		}
		newest := slices.Max(slices.Collect(maps.Keys(want)))
		for w := newest - min(newest, slots-1); w <= newest+2; w++ {
			if g.Has(w) != want[w] {
				t.Fatalf("window %d: excluded %t, want %t", w, g.Has(w), want[w])
			}
		}
	}
}

// Times that no host has do no harm: the series stays small and fast.
func TestAbsurdTimes(t *testing.T) {
	t.Parallel()
	const end = ^schema.KTime(0)
	s := NewSeries(0, 3)
	var g Gaps
	g.Mark(1, 0, end)
	for _, at := range []schema.KTime{end, 0, end / 2, 7} {
		s.Add(at, 1<<63)
		s.Remove(end, at, 1<<63)
		s.Judge(Verdict{State: Suspect}, uint64(at), &g, Criteria{})
	}
	if s.Live() != 0 {
		t.Errorf("%d bytes are live", s.Live())
	}
}

func TestDamagedSeriesIsRefused(t *testing.T) {
	t.Parallel()
	for _, values := range [][]uint64{{1 << 63, 1, 0}, {5, 7, 0}} {
		var w snapshot.Writer
		for _, v := range values {
			w.Uint(v)
		}
		in := snapshot.NewReader(append(w.Data(), make([]byte, 100)...))
		if NewSeries(time.Second, 0).Code(&snapshot.Codec{Reader: in}, 0); in.Err() == nil {
			t.Errorf("%v is restored", values)
		}
	}
}

// BenchmarkSeries adds and removes memory; Judge judges a series that grows.
func BenchmarkSeries(b *testing.B) {
	b.Run("AddRemove", func(b *testing.B) {
		s, now := NewSeries(time.Minute, 0), schema.KTime(0)
		for b.Loop() {
			now += 1000
			s.Add(now, 512)
			s.Remove(now+100, now-now/3, 512)
		}
	})
	b.Run("Judge", func(b *testing.B) {
		s := NewSeries(time.Minute, 0)
		for i := range schema.KTime(93) {
			s.Add(i*schema.KTime(20*time.Second), 1<<20)
		}
		var g Gaps
		b.ReportAllocs()
		for b.Loop() {
			s.Judge(Verdict{}, 31, &g, Criteria{})
		}
	})
}

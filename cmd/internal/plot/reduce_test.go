package plot

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// walk returns points whose distances vary by orders of magnitude, as those of allocations do.
func walk(random *rand.Rand, count int) []Point {
	points := make([]Point, count)
	at, value := time.Duration(random.Int64N(1e12)-5e11), 0.0
	for i := range points {
		at += time.Duration(math.Exp(random.Float64() * 20))
		value += random.NormFloat64() * 1e6
		points[i] = Point{at, value}
	}
	return points
}

// Every pixel of any width keeps its least and its largest value, and the last value of the series.
func TestReductionKeepsTheExtremesOfEachPixel(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 2))
		points := walk(random, 1+random.IntN(50000))
		width := 1 + random.IntN(500)
		r := NewReducer(width)
		for _, p := range points {
			r.Add(p)
		}
		kept := slices.Collect(r.Points())
		if len(kept) > 24*width {
			t.Fatalf("%d points for %d pixels", len(kept), width)
		}
		if !slices.IsSortedFunc(kept, func(a, b Point) int { return int(a.At - b.At) }) {
			t.Fatal("not in the order of time")
		}
		if kept[0] != points[0] || kept[len(kept)-1] != points[len(points)-1] {
			t.Error("the first or the last point is lost")
		}
		bin := time.Duration(1) << r.shift
		if span := points[len(points)-1].At - points[0].At; bin > 1 && float64(bin) > float64(span)/float64(width)*0.5 {
			t.Errorf("a bin of %v for pixels of %v", bin, span/time.Duration(width))
		}
		if want, got := extremes(points, r.shift), extremes(kept, r.shift); !slices.Equal(want, got) {
			t.Errorf("seed %d: the extremes differ", seed)
		}
	}
}

// extremes returns the least and the largest value of each part of the time.
func extremes(points []Point, shift uint) (all [][3]float64) {
	for _, p := range points {
		key := float64(p.At >> shift)
		if n := len(all); n > 0 && all[n-1][0] == key {
			all[n-1][1], all[n-1][2] = min(all[n-1][1], p.Value), max(all[n-1][2], p.Value)
		} else {
			all = append(all, [3]float64{key, p.Value, p.Value})
		}
	}
	return all
}

func TestReductionOfHostilePoints(t *testing.T) {
	r := NewReducer(0)
	for _, p := range []Point{
		{5, math.NaN()}, {5, 1}, {3, 7}, {4, math.Inf(1)}, {math.MaxInt64, 2}, {math.MinInt64, 3},
	} {
		r.Add(p)
	}
	want := []Point{{5, 1}, {5, 7}, {farthest, 2}, {farthest, 3}}
	if got := slices.Collect(r.Points()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var empty Reducer
	empty.Points()(func(Point) bool { t.Error("a point of nothing"); return true })
}

func TestCut(t *testing.T) {
	points := []Point{{0, 1}, {10, 11}, {20, 21}, {30, 31}}
	for _, test := range []struct {
		name     string
		step     bool
		from, to time.Duration
		want     []Point
	}{
		{"steps", true, 5, 25, []Point{{5, 1}, {10, 11}, {20, 21}}},
		{"lines", false, 5, 25, []Point{{5, 6}, {10, 11}, {20, 21}, {25, 26}}},
		{"on points", true, 10, 20, []Point{{10, 1}, {10, 11}, {20, 21}}},
		{"all", false, -5, 35, points},
		{"before", true, -9, -5, nil},
		{"within two points", true, 12, 15, []Point{{12, 11}}},
		{"after", true, 35, 45, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := slices.Collect(cut(Series{Points: Points(points), Step: test.step}, test.from, test.to).Points)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

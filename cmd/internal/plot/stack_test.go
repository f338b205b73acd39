package plot

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// total returns the largest sum of step series, counted naively.
func total(all [][]Point) (most float64) {
	type change struct {
		at     time.Duration
		series int
		value  float64
	}
	var changes []change
	for i, points := range all {
		for _, p := range points {
			changes = append(changes, change{p.At, i, p.Value})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	values := make([]float64, len(all))
	for i, c := range changes {
		values[c.series] = c.value
		if i+1 < len(changes) && changes[i+1].at == c.at {
			continue
		}
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		most = max(most, sum)
	}
	return most
}

func TestStackKeepsTheLargestTotal(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		var series []Series
		var all [][]Point
		for range 1 + random.IntN(12) {
			points := walk(random, 1+random.IntN(300))
			for i := range points {
				points[i].At = max(0, points[i].At+5e11)
				points[i].Value = math.Abs(points[i].Value)
			}
			all, series = append(all, points), append(series, Series{Points: Points(points)})
		}
		k := collect(Chart{Series: series, Stacked: true}, 100)
		if len(k.curves) > Limit+1 {
			t.Fatalf("%d layers", len(k.curves))
		}
		most := 0.0
		for _, column := range columns(k.curves, k.from, k.to, 100) {
			sum := 0.0
			for _, v := range column {
				sum += v
			}
			most = max(most, sum)
		}
		if want := total(all); math.Abs(most-want) > 1e-6*want {
			t.Errorf("seed %d: the largest total is %g, want %g", seed, most, want)
		}
	}
}

func TestStackOrder(t *testing.T) {
	var series []Series
	for i, peak := range []float64{3, 9, 1, 7, 2, 8, 4, 6, 5} {
		series = append(series, Series{Name: string(rune('a' + i)), Points: Points([]Point{{0, peak}})})
	}
	var names []string
	layers := stackOf(append(series, Series{Name: "empty"}), 100)
	for _, c := range layers {
		names = append(names, c.name)
	}
	if want := []string{"b", "f", "d", "h", "i", "g", "a", "other (2)"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if got := layers[Limit].points; !slices.Equal(got, []Point{{0, 3}}) {
		t.Errorf("the others are %v", got)
	}
}

func TestSeriesEndsInStack(t *testing.T) {
	ends := curve{points: []Point{{0, 4}, {50, 5}}, ends: true}
	holds := curve{points: []Point{{10, 1}}}
	got := columns([]curve{ends, holds}, 0, 100, 4)
	if want := [][]float64{{4, 1}, {4, 1}, {5, 1}, {0, 1}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestValueOfCurve(t *testing.T) {
	points := []Point{{10, 1}, {20, 3}}
	for _, test := range []struct {
		name  string
		curve curve
		at    time.Duration
		value float64
		ok    bool
	}{
		{"before", curve{step: true, points: points}, 5, 0, false},
		{"step", curve{step: true, points: points}, 15, 1, true},
		{"line", curve{points: points}, 15, 2, true},
		{"last", curve{points: points}, 20, 3, true},
		{"holds", curve{step: true, points: points}, 25, 3, true},
		{"ends", curve{step: true, ends: true, points: points}, 25, 3, false},
	} {
		if value, ok := test.curve.at(test.at); value != test.value || ok != test.ok {
			t.Errorf("%s: got %g, %v", test.name, value, ok)
		}
	}
}

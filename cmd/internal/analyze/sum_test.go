package analyze

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/plot"
)

// TestSumEqualsNaiveSum adds up all functions at each point. Many points are at one time, and some functions are empty.
func TestSumEqualsNaiveSum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 6))
		type change struct {
			of int
			plot.Point
		}
		var parts []iter.Seq[plot.Point]
		var changes []change
		for i := range 2 + rng.IntN(12) {
			var points []plot.Point
			at := time.Duration(0)
			for range rng.IntN(40) {
				at += time.Duration(rng.IntN(3))
				points = append(points, plot.Point{At: at, Value: float64(rng.IntN(1000))})
				changes = append(changes, change{i, points[len(points)-1]})
			}
			parts = append(parts, slices.Values(points))
		}
		slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.At, b.At) })
		values := make([]float64, len(parts))
		var want []plot.Point
		for _, c := range changes {
			values[c.of] = c.Value
			total := 0.0
			for _, v := range values {
				total += v
			}
			want = append(want, plot.Point{At: c.At, Value: total})
		}
		if got := slices.Collect(sum(parts)); !slices.Equal(got, want) {
			t.Fatalf("seed %d: got  %v\nwant %v", seed, got, want)
		}
		for got := range sum(parts) { // the reader may stop early
			if got != want[0] {
				t.Fatalf("seed %d begins with %v, want %v", seed, got, want[0])
			}
			break
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, functions := range []int{10, 1000} {
		points := 100_000 / functions
		var parts []iter.Seq[plot.Point]
		for i := range functions {
			parts = append(parts, func(yield func(plot.Point) bool) {
				for n := range points {
					if !yield(plot.Point{At: time.Duration(n*functions + i), Value: float64(n)}) {
						return
					}
				}
			})
		}
		b.Run(fmt.Sprint(functions, " functions"), func(b *testing.B) {
			for b.Loop() {
				for range sum(parts) {
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*points*functions), "ns/point")
		})
	}
}

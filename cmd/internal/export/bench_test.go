package export

import (
	"os"
	"testing"
)

// BenchmarkLaunches exports the launches of a recording of PyTorch programs on a GPU. ns/launch is the figure to read.
func BenchmarkLaunches(b *testing.B) {
	const recorded, launches = "../harness/corpus/testdata/first/group-2.gputap", 103346
	for _, form := range []string{"jsonl", "csv", "parquet"} {
		b.Run(form, func(b *testing.B) {
			for b.Loop() {
				if _, err := typed(b, form, recorded, "-o", os.DevNull, "--kind", "launch"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/launches, "ns/launch")
		})
	}
}

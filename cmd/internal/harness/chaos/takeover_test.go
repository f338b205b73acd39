package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// said is a line of a consumer's log about a shard.
func said(at time.Time, msg string) string {
	return fmt.Sprintf("time=%s level=INFO msg=%q consumer=leak instance=x shard=3 seq=1\n", at.Format(time.RFC3339Nano), msg)
}

func TestOutages(t *testing.T) {
	t0 := time.Now()
	line := func(at float64, msg string) string { return said(t0.Add(time.Duration(at*float64(time.Second))), msg) }
	owned := func(at float64) string { return line(at, "shard is owned") + line(at+0.1, "folding has begun") }
	for _, row := range []struct {
		name       string
		kills      []float64 // of leak-0
		mine, next string    // logs
		want       string
	}{
		{"killed again before anybody folds", []float64{0, 4, 8}, owned(-30), owned(10), "median 10.1 s, the longest 10.1 s, of 1; 0 were not folded again"},
		{"it takes its own shard again", []float64{0}, owned(-30) + owned(12), "", "median 12.1 s, the longest 12.1 s, of 1; 0 were not folded again"},
		{"owned and not folded", []float64{0}, owned(-30), line(10, "shard is owned"), "no shard was folded again; 1 were not"},
		{"owned, and folded much later", []float64{0}, owned(-30), line(10, "shard is owned") + line(30, "folding has begun"), "median 30.0 s, the longest 30.0 s, of 1; 0 were not folded again"},
		{"the lease was lost before", []float64{0}, owned(-30) + line(-20, "lease was lost: the shard is another's"), owned(1), "no shard was folded again; 0 were not"},
		{"given away before", []float64{0}, owned(-30) + line(-20, "shard is given away"), owned(1), "no shard was folded again; 0 were not"},
		{"another owned it", []float64{0}, "", owned(-30), "no shard was folded again; 0 were not"},
		{"two outages", []float64{0, 40}, owned(-30) + owned(20), owned(10) + line(19, "shard is given away") + owned(52), "median 10.1 s, the longest 12.1 s, of 2; 0 were not folded again"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := fleet{dir: t.TempDir()}
			for name, log := range map[string]string{"leak-0": row.mine, "leak-1": row.next} {
				p := &cluster.Process{Name: name, Dir: f.dir}
				if err := os.WriteFile(p.Log(), []byte(log), 0o644); err != nil {
					t.Fatal(err)
				}
				f.consumers = append(f.consumers, p)
			}
			for _, at := range row.kills {
				f.kills = append(f.kills, kill{"leak-0", t0.Add(time.Duration(at * float64(time.Second)))})
			}
			if got := f.outages().String(); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestPercentileOfAHundred(t *testing.T) {
	var o outages
	for i := range 100 {
		o.took = append(o.took, time.Duration(i+1)*time.Second)
	}
	if got := o.String(); !strings.Contains(got, "median 50.0 s, 99th percentile 99.0 s, the longest 100.0 s, of 100") {
		t.Error(got)
	}
}

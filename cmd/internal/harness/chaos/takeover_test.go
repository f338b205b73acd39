package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// logLine is a line of a consumer's log about a shard.
func logLine(at time.Time, msg string) string {
	return fmt.Sprintf("time=%s level=INFO msg=%q consumer=leak instance=x shard=3 seq=1\n",
		at.Format(time.RFC3339Nano), msg)
}

func TestTakeoverLastsFromKillToNextBatch(t *testing.T) {
	t0 := time.Now()
	line := func(at float64, msg string) string {
		return logLine(t0.Add(time.Duration(at*float64(time.Second))), msg)
	}
	owned := func(at float64) string { return line(at, acquired) + line(at+0.1, folded) }
	for _, row := range []struct {
		name       string
		kills      []float64 // of leak-0
		mine, next string    // logs of leak-0 and leak-1
		want       string
	}{
		{"killed again before the takeover", []float64{0, 4, 8}, owned(-30), owned(10),
			"median 10.1 s, max 10.1 s (n=1); 0 unfinished"},
		{"takes its own shard over", []float64{0}, owned(-30) + owned(12), "",
			"median 12.1 s, max 12.1 s (n=1); 0 unfinished"},
		{"acquired and not folded", []float64{0}, owned(-30), line(10, acquired), "no takeover; 1 unfinished"},
		{"acquired, and folded much later", []float64{0}, owned(-30), line(10, acquired) + line(30, folded),
			"median 30.0 s, max 30.0 s (n=1); 0 unfinished"},
		{"lost before the kill", []float64{0}, owned(-30) + line(-20, lost), owned(1),
			"no takeover; 0 unfinished"},
		{"released before the kill", []float64{0}, owned(-30) + line(-20, released), owned(1),
			"no takeover; 0 unfinished"},
		{"another instance owned it", []float64{0}, "", owned(-30), "no takeover; 0 unfinished"},
		{"two takeovers", []float64{0, 40}, owned(-30) + owned(20), owned(10) + line(19, released) + owned(52),
			"median 10.1 s, max 12.1 s (n=2); 0 unfinished"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, dir := fleet{}, t.TempDir()
			for name, log := range map[string]string{"leak-0": row.mine, "leak-1": row.next} {
				p := &cluster.Process{Name: name, Dir: dir}
				if err := os.WriteFile(p.Log(), []byte(log), 0o644); err != nil {
					t.Fatal(err)
				}
				f.consumers = append(f.consumers, p)
			}
			for _, at := range row.kills {
				at := t0.Add(time.Duration(at * float64(time.Second)))
				f.kills = append(f.kills, shardEvent{process: "leak-0", what: killed, at: at})
			}
			events, err := f.shardEvents()
			if got := takeoversOf(events).String(); err != nil || got != row.want {
				t.Errorf("%s, %v, want %s", got, err, row.want)
			}
		})
	}
}

func TestHundredTakeoversHaveA99thPercentile(t *testing.T) {
	var list takeovers
	for i := range 100 {
		list.took = append(list.took, time.Duration(i+1)*time.Second)
	}
	if got := list.String(); !strings.Contains(got, "median 50.0 s, p99 99.0 s, max 100.0 s (n=100)") {
		t.Error(got)
	}
}

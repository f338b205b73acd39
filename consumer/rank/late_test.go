package rank

import (
	"maps"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// Heartbeats are late and one kind comes after the other, as after an outage. Windows that were published are complete:
// those whose calls the fold could not keep are left out.
func TestKindsThatAreLate(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 2, PerHost: 2, Every: 500 * time.Millisecond,
		Step: consumertest.Gloo(20, 1, 50*time.Millisecond), Random: source(3)}
	messages := j.Messages(t, 80*time.Second)
	kinds := make([]schema.Kind, len(messages))
	for i, m := range messages {
		kinds[i] = consumertest.Decode(t, m.Data).Kind
	}
	want := truth(j, 66*time.Second)
	for lag := 27 * time.Second; lag < 60*time.Second; lag += 1500 * time.Millisecond {
		f := feed(t)
		for from := 0; from < len(messages); {
			to := from + 1
			if messages[from].At > 20*time.Second && messages[from].At <= 20*time.Second+lag {
				for to < len(messages) && messages[to].At <= 20*time.Second+lag {
					to++
				}
			}
			for kind := range schema.NumKinds { // heartbeats come last
				for i := from; i < to; i++ {
					if kinds[i] == kind {
						f.take(messages[i])
					}
				}
			}
			from = to
		}
		got := f.figures()
		published := map[[2]int]bool{}
		for c := range got {
			published[[2]int{c.window, c.rank}] = true
		}
		out := func(c cell, _ schema.Rank) bool { return c.window > 30 || !published[[2]int{c.window, c.rank}] }
		maps.DeleteFunc(got, out)
		left := maps.Clone(want)
		maps.DeleteFunc(left, out)
		compare(t, got, left)
		if len(published) < 30 {
			t.Errorf("%s late: %d windows of ranks were published", lag, len(published))
		}
	}
}

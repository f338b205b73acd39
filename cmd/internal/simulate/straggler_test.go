package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/job"
	rankfold "github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

// TestSlowRankIsNamed: the rule straggler names the slow rank of the first job within 20 s, and no rank of the others.
// A host of the first job has a wrong clock.
func TestSlowRankIsNamed(t *testing.T) {
	t.Parallel()
	for name, perHost := range map[string]float64{"usual": 300, "steps of a second": 26} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleetOf(t, 5*ranks, perHost, 1)
			f.Jobs, f.SlowRank, f.Rate = 5, 0.3, 5*ranks*perHost
			type message struct {
				due  schema.KTime
				data []byte
			}
			var all []message
			for i := range f.Hosts {
				h := f.host(i)
				for due, _, _ := h.next(); due <= schema.KTime(time.Minute); due, _, _ = h.next() {
					all = append(all, message{due, h.make().data})
				}
			}
			slices.SortStableFunc(all, func(a, b message) int { return int(a.due) - int(b.due) })
			at, decoder, batch := time.Duration(0), schema.NewDecoder(), &schema.Batch{}
			jobs := job.New(job.Config{Severity: alert.Warning, OnAlert: func(a alert.Alert) {
				if a.Host != "sim-0003" || a.State != alert.Firing || at > 20*time.Second {
					t.Errorf("after %s: %s %s", at, a.State, a.Message)
				}
			}})
			folds := rankfold.New(rankfold.Config{Publish: func(s rankfold.Summary) {
				if err := decoder.Decode(s.Message, batch); err != nil {
					t.Fatal(err)
				}
				if err := jobs.Apply(batch); err != nil {
					t.Fatal(err)
				}
			}})
			for _, m := range all {
				at = time.Duration(m.due)
				consumertest.Take(t, folds, consumertest.Step{Message: m.data})
			}
			if alerts := jobs.Alerts(); len(alerts) != 1 || len(jobs.Report()) != f.Jobs {
				t.Errorf("%d alerts in %d jobs", len(alerts), len(jobs.Report()))
			}
		})
	}
}

package job

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

// docs/alerts.md shows the alert that this job raises: its ranks pause for 28 % of the time between the copies of their
// gradients, and rank 3 for one percent.
func TestDocumentedAlert(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPair(t)
	p.jobs = New(Config{Severity: alert.Info, OnAlert: func(a alert.Alert) { p.alerts = append(p.alerts, a) }})
	for window := range 3 {
		for n := range uint32(8) {
			b := schema.NewBuilder(schema.KindRank)
			b.Origin = fmt.Sprintf("gpu-%02d", n)
			at := schema.KTime(time.Duration(window) * schema.RankWindow)
			th := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 4711, Comm: "python3",
				Job: "slurm:812.0", Rank: n + 1, Ranks: 8})})
			paused := 28 * schema.RankWindow / 100
			if n == 3 {
				paused = schema.RankWindow / 100
			}
			b.AddRank(&schema.Rank{Time: at, Thread: th, To: schema.Launching, Count: 9000})
			b.AddRank(&schema.Rank{Time: at, Thread: th, From: schema.CopyingDtoH, To: schema.CopyingHtoD, Count: 50,
				Duration: uint64(paused)})
			p.publish(rank.Summary{Message: b.Encode(&schema.Header{Cluster: "default", Host: "slurm:812.0",
				BootID: b.Origin, Run: 1, Seq: uint64(window + 1), ClockOffset: consumertest.Wall.UnixNano()})})
		}
	}
	if len(p.alerts) != 1 {
		t.Fatalf("%d alerts", len(p.alerts))
	}
	a := p.alerts[0]
	first, err := json.Marshal(struct {
		Rule     string  `json:"rule"`
		Severity string  `json:"severity"`
		Value    float64 `json:"value"`
		Baseline float64 `json:"baseline"`
		Score    float64 `json:"score"`
	}{a.Rule, a.Severity, a.Value, a.Baseline, a.Score})
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprintf("%s,\n \"message\":%q}\n", first[:len(first)-1], a.Message); !strings.Contains(string(page),
		shown) {
		t.Errorf("docs/alerts.md does not show\n%s", shown)
	}
}

package anomaly

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// docs/alerts.md shows one alert of each rule. They are the ones that these programs raise.
func TestPageShowsAnAlertOfEachRule(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(*world, *consumertest.Process){
		"alloc_size": func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			w.alloc(p, 2096*mib, 4)
			w.tick(10, 60)
		},
		"oom": func(w *world, p *consumertest.Process) {
			w.alloc(w.process(41, "serve"), 20*gib, 2)
			w.alloc(p, 58*gib, 3)
			w.torch(p, 9, [2]uint64{30, 58})
			w.fail(p, 20*gib, 10)
			p.Exit(ktime(11))
			w.tick(20, 20)
		},
		"oom_recovered": func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			w.alloc(p, 2*gib, 10.25)
			w.tick(20, 20)
		},
		"alloc_rate":      running(phase{40, 50_000, 300}, phase{6, 50_000, 3000}),
		"launch_collapse": running(phase{40, 100_000, 0}, phase{20, 12_000, 0}),
		"copy_regression": moving(copying{direction: schema.HtoD, memory: schema.HostMemPinned},
			rates(20, 24, 12, 12, 12)...),
		"pageable_copies": func(w *world, p *consumertest.Process) {
			w.copies(p, 31, copying{schema.HtoD, true, 40, 16 * mib, 5, schema.HostMemPageable}, 20)
		},
		"telemetry_loss": func(w *world, p *consumertest.Process) {
			at := w.busy(p, 3, 1000, 20)
			w.host.Header.Lost[schema.LossBulkRing] += 5000
			w.busy(p, 1, 1000, at)
		},
	} {
		w := newWorld(t, everything)
		if name == "telemetry_loss" {
			w = newWorld(t, only(func(c *rule.Config) { c.TelemetryLoss.Mode = rule.Alert }))
		}
		run(w, w.process(42, "train"))
		if len(w.changes) == 0 || w.changes[0].Rule != name || w.changes[0].State != alert.Firing {
			t.Errorf("%s: found %q", name, w.found())
			continue
		}
		a := w.changes[0]
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
		shown := fmt.Sprintf("%s,\n \"message\":%q}\n", first[:len(first)-1], a.Message)
		if !strings.Contains(string(page), shown) {
			t.Errorf("docs/alerts.md does not show\n%s", shown)
		}
	}
}

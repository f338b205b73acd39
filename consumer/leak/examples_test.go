package leak

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
)

// docs/alerts.md shows one alert of each rule. They are the ones that these programs raise.
func TestPageShowsAnAlertOfEachRule(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(*simulation){
		"leak_growth": func(s *simulation) {
			s.load()
			s.every(30*time.Second, 50*time.Minute, func(int) { s.alloc(9, 16*mib) })
		},
		"unfreed_at_exit": func(s *simulation) {
			all := s.load()
			s.sleep(10 * time.Minute)
			s.free(all[2:]...)
			s.p.Exit(s.now)
			s.flush()
		},
	} {
		s, raised := alerting(t, Rules{})
		run(s)
		if len(*raised) == 0 || (*raised)[0].Rule != name || (*raised)[0].State != alert.Firing {
			t.Errorf("%s: found %q", name, texts(*raised))
			continue
		}
		a := (*raised)[0]
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

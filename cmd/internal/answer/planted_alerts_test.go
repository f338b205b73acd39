package answer_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/harness/naive"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/query"
)

var number = regexp.MustCompile(`(?:^|[^\w.])(0x[0-9a-f]+|\d[\d.hms]*(?: (?:[KMGT]i)?B\b)?)`)

// figures replaces the message of each alert and the reason of each verdict in an answer by its numbers.
func figures(t *testing.T, v any) (out any) {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	must(t, json.Unmarshal(data, &out))
	replace(out)
	return out
}

func replace(v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			replace(one)
		}
	case map[string]any:
		for _, key := range []string{"message", "why"} {
			if text, ok := v[key].(string); ok {
				numbers := []string{}
				for _, found := range number.FindAllStringSubmatch(text, -1) {
					numbers = append(numbers, strings.TrimRight(found[1], "."))
				}
				v[key] = numbers
			}
		}
		for _, one := range v {
			replace(one)
		}
	}
}

// TestAlertsEqualNaiveCount compares every key of the alerts of a fleet, and the numbers of their messages, with a
// naive count over the same events. The same alerts and the growth stand in other answers. The id is a hash.
func TestAlertsEqualNaiveCount(t *testing.T) {
	t.Parallel()
	p := &published{js: bustest.Connect(t)}
	must(t, bus.EnsureStreams(t.Context(), p.js, bus.StreamOptions{Shards: 1}))
	want := p.log.Alerts(plant(t, p))
	f := p.serve(t, 1)
	alerts, err := f.Alerts(t.Context(), query.Question{})
	same(t, "alerts", figures(t, items(t, alerts, err)), want, []string{"/*/id"}, nil)

	s, err := answer.StatusAt(f, t.Context(), query.Filter{}, time.Now())
	must(t, err)
	got := figures(t, s.Alerts)
	same(t, "status", got, naive.Object{"recent": len(want), "newest": want[0]}, []string{"/newest/id"}, nil)

	verdict, perHour := p.log.Growth("gpu", 11, 120e9, 31)
	leaker, err := f.Describe(t.Context(), query.Filter{PID: 11}, 0)
	verdicts := items(t, leaker, err)[0].Verdicts
	same(t, "verdict", figures(t, verdicts), []any{verdict}, []string{"/0/peak_bytes", "/0/peak_time"}, nil)

	now := time.Now().UTC()
	o, err := answer.OverviewAt(f, t.Context(), query.Filter{}, now)
	must(t, err)
	growth := map[uint32]uint64{11: perHour, 12: 0, 13: 0, 14: 0} // the others hold memory for less than 17 minutes
	same(t, "top", figures(t, o.Top()), p.log.Top(now, 1, growth, want), []string{"/firing/*/id"},
		map[string]string{"/items": "pid"})
}

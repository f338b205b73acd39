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

// figures replaces the message of each alert in an answer by its numbers.
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
		if text, ok := v["message"].(string); ok {
			numbers := []string{}
			for _, found := range number.FindAllStringSubmatch(text, -1) {
				numbers = append(numbers, strings.TrimRight(found[1], "."))
			}
			v["message"] = numbers
		}
		for _, one := range v {
			replace(one)
		}
	}
}

// TestAlertsEqualNaiveCount compares every key of the alerts of a fleet, and the numbers of their messages, with a naive
// count over the same events. The id is a hash.
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
}

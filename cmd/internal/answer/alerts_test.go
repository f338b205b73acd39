package answer

import (
	"fmt"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

type alerting []alert.Alert

func (alerting) Name() string              { return "alerting" }
func (alerting) Kinds() []schema.Kind      { return nil }
func (alerting) Apply(*schema.Batch) error { return nil }
func (f alerting) Alerts() []alert.Alert   { return f }

// The alerts about silent hosts stand among those of the folds.
func TestAlertsOfFoldsAndOfSilentHosts(t *testing.T) {
	t.Parallel()
	at := func(second int64, host, state string) alert.Alert {
		return alert.Alert{Time: time.Unix(second, 0), Host: host, State: state}
	}
	p := &Part{
		Folds:  []consumer.Fold{alerting{at(1, "a", alert.Firing), at(4, "b", alert.Cleared)}},
		Silent: func() []alert.Alert { return []alert.Alert{at(2, "b", alert.Firing), at(3, "c", alert.Firing)} },
	}
	for _, test := range []struct {
		name  string
		q     query.Question
		want  string
		total int
	}{
		{"all", query.Question{What: whatAlerts}, "[b4 c3 b2 a1]", 4},
		{"firing", query.Question{What: whatFiring, Limit: 2}, "[c3 b2]", 3},
		{"of a host", query.Question{What: whatAlerts, Filter: query.Filter{Host: "b"}}, "[b4 b2]", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			rows, total := p.alertRows(&test.q)
			for row := range rows {
				a := row.(*alert.Alert)
				got = append(got, fmt.Sprint(a.Host, a.Time.Unix()))
			}
			if fmt.Sprint(got) != test.want || total != test.total {
				t.Errorf("got %s of %d, want %s of %d", got, total, test.want, test.total)
			}
		})
	}
}

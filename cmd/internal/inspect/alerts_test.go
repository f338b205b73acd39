package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// alert publishes the JSON of an alert that fired or cleared at a minute, and returns when NATS stored it.
func (f *simFleet) alert(id, state, host, user, comm string, minute int) (stored time.Time) {
	f.tb.Helper()
	at := time.Date(2026, 11, 23, 10, minute, 0, 0, time.UTC).Format(time.RFC3339)
	body := fmt.Sprintf(`{"id":%q,"state":%q,"time":%q,"rule":"oom","severity":"critical","cluster":"prod","host":%q,`+
		`"pid":7,"user":%q,"comm":%q,"job":"slurm:7","message":"of %[1]s"}`, id, state, at, host, user, comm)
	ack, err := f.js.Publish(f.tb.Context(), "gputap.v1.out.alert.anomaly.prod."+host, []byte(body))
	f.check(err)
	stream, err := f.js.Stream(f.tb.Context(), "GPUTAP_OUT")
	f.check(err)
	m, err := stream.GetMsg(f.tb.Context(), ack.Sequence)
	f.check(err)
	return m.Time
}

// TestAlertHistory compares get alerts --since with the alerts that are stored. No consumer runs.
func TestAlertHistory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.alert("a1", "firing", "gpu-1", "ann", "train", 1)
	f.alert("a2", "firing", "gpu-2", "bob", "serve", 2)
	third := f.alert("a3", "firing", "gpu-1", "ann", "serve", 3)
	f.alert("a1", "cleared", "gpu-1", "ann", "train", 5)
	f.alert("a1", "firing", "gpu-1", "ann", "train", 1) // a fold was rebuilt from the stream
	last := f.alert("a4", "cleared", "gpu-2", "bob", "train", 4)
	exact := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
	for _, row := range []struct {
		args  string
		total int
		want  []string
	}{
		{"--since 1h", 4, []string{"a1 cleared", "a4 cleared", "a3 firing", "a2 firing"}},
		{"--since 1h --limit 2", 4, []string{"a1 cleared", "a4 cleared"}},
		{"--since 1h --limit 0 --sort host", 4, []string{"a1 cleared", "a3 firing", "a4 cleared", "a2 firing"}},
		{"--since 1h --host gpu-2", 2, []string{"a4 cleared", "a2 firing"}},
		{"--since 1h --host gpu-[13] --cluster prod", 2, []string{"a1 cleared", "a3 firing"}},
		{"--since 1h --user bob --comm train", 1, []string{"a4 cleared"}},
		{"--since 1h --job slurm:*", 4, []string{"a1 cleared", "a4 cleared", "a3 firing", "a2 firing"}},
		{"--since 1h --cluster lab", 0, nil},
		{"--since " + exact(third), 3, []string{"a1 cleared", "a4 cleared", "a3 firing"}},
		{"--since " + exact(last), 1, []string{"a4 cleared"}},
		{"--since " + exact(last.Add(1)), 0, nil},
		{"--since 0s", 0, nil},
	} {
		got := list[alert.Alert](f, append([]string{"alerts"}, strings.Fields(row.args)...)...)
		var names []string
		for _, a := range got.Items {
			names = append(names, a.ID+" "+a.State)
		}
		if !slices.Equal(names, row.want) || got.Total != row.total || got.Begins == nil {
			t.Errorf("%s: %q, total %d, begins %v; want %q, total %d", row.args, names, got.Total, got.Begins, row.want,
				row.total)
		}
	}
	stdout, stderr, err := f.typed("get", "alerts", "--since", "1h", "--limit", "1")
	f.check(err)
	if !strings.Contains(stdout, "cleared  critical  oom   gpu-1    7  train    of a1") ||
		!strings.Contains(stderr, "the alerts stream begins at ") || !strings.Contains(stderr, "and 3 more") {
		t.Errorf("shows\n%s%s", stdout, stderr)
	}
	stdout, stderr, err = f.typed("get", "alerts", "--since", "1h", "--limit", "1", "-o", "json")
	f.check(err)
	if strings.Contains(stdout, "more") || !strings.Contains(stderr, "… and 3 more; --limit 0 shows all\n") {
		t.Errorf("-o json shows\n%s%s", stdout, stderr)
	}
	if _, stderr, err = f.typed("get", "alerts", "--since", exact(last)); err != nil || stderr != "" {
		t.Errorf("since a time after the stream was created: %v, %s", err, stderr)
	}
}

// TestLongAlertHistory needs several requests, and leaves out a message that is no alert.
func TestLongAlertHistory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	const n = 2500
	for i := range n {
		body := fmt.Sprintf(`{"id":"a%d","state":"firing","time":"2026-11-23T10:00:00Z","host":"gpu-%d"}`, i, i%5)
		_, err := f.js.PublishAsync(fmt.Sprintf("gputap.v1.out.alert.leak.prod.gpu-%d", i%5), []byte(body))
		f.check(err)
	}
	_, err := f.js.PublishAsync("gputap.v1.out.alert.leak.prod.gpu-0", []byte("no alert"))
	f.check(err)
	select {
	case <-f.js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("the alerts are not stored")
	}
	for host, want := range map[string]int{"*": n, "gpu-3": n / 5} {
		got := list[alert.Alert](f, "alerts", "--since", "1h", "--limit", "0", "--timeout", "20s", "--host", host)
		ids := map[string]bool{}
		for _, a := range got.Items {
			ids[a.ID] = true
		}
		if len(ids) != want || len(got.Items) != want {
			t.Errorf("host %s: %d alerts, %d different; want %d", host, len(got.Items), len(ids), want)
		}
	}
	_, stderr, err := f.typed("get", "alerts", "--since", "1h", "--timeout", "20s")
	f.check(err)
	if !strings.Contains(stderr, "1 messages of GPUTAP_OUT were left out: they are not alerts") {
		t.Errorf("says %s", stderr)
	}
}

func TestWrongAlertHistory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	for since, want := range map[string]string{"yesterday": `--since: "yesterday" is not a time`, "-1h": "is not a time"} {
		_, _, err := f.typed("get", "alerts", "--since", since)
		if app.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("--since %s ends with %d, %v", since, app.ExitCode(err), err)
		}
	}
	if _, _, err := f.typed("get", "hosts", "--since", "1h"); err == nil {
		t.Error("get hosts has --since")
	}
	f.check(f.js.DeleteStream(t.Context(), schema.OutStream))
	if _, _, err := f.typed("get", "alerts", "--since", "1h"); err == nil || !strings.Contains(err.Error(),
		"run gputap stream init") {
		t.Errorf("without the stream: %v", err)
	}
}

// TestFullAlertsStream: the oldest alerts had to leave for new ones.
func TestFullAlertsStream(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	created, err := f.js.Stream(t.Context(), schema.OutStream)
	f.check(err)
	c := created.CachedInfo().Config
	c.MaxBytes = 2000
	_, err = f.js.UpdateStream(t.Context(), c)
	f.check(err)
	var times []time.Time
	for i := range 20 {
		times = append(times, f.alert(fmt.Sprint("a", i), "firing", "gpu-1", "ann", "train", i))
	}
	var state jetstream.StreamState
	bustest.Eventually(t, "alerts are evicted", func() bool {
		info, err := created.Info(t.Context())
		f.check(err)
		state = info.State
		return state.FirstSeq > 1
	})
	got := list[alert.Alert](f, "alerts", "--since", "1h")
	oldest := times[state.FirstSeq-1]
	if len(got.Items) != int(state.Msgs) || got.Begins == nil || !got.Begins.Equal(oldest) {
		t.Errorf("%d alerts of %d, complete since %v, want %v", len(got.Items), state.Msgs, got.Begins, oldest)
	}
}

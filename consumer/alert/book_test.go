package alert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0).UTC() }

func keyOf(host string, pid uint32) Key {
	return Key{Rule: "oom", GPU: "GPU-1", Process: schema.ProcessID{Cluster: "c", Host: host, BootID: "b", PID: pid,
		Start: 7}}
}

func some() Alert { return Alert{Severity: Critical, Comm: "train", Message: "It ran out of memory."} }

func fire(b *Book, host string, pid uint32, seconds int) bool {
	return b.Fire(keyOf(host, pid), at(seconds), uint64(seconds), some)
}

func suppressions(b *Book) string {
	return fmt.Sprint(b.suppressed[suppressed{"oom", reasonRepeat}], b.suppressed[suppressed{"oom", reasonCooldown}],
		b.suppressed[suppressed{"oom", reasonLimit}])
}

// An alert fires once, counts repetitions, clears under its id, and fires under a new id after the cool-down.
func TestLife(t *testing.T) {
	t.Parallel()
	b := NewBook(Config{Family: "anomaly", Cooldown: time.Minute})
	k := keyOf("x", 1)
	if !fire(b, "x", 1, 0) || fire(b, "x", 1, 5) || !fire(b, "x", 2, 6) {
		t.Error("the first finding of each process must fire, and only that")
	}
	b.Clear(k, at(10), "an allocation succeeded")
	b.Clear(k, at(11), "this is the second time")
	if b.Fires(k) || !b.Fires(keyOf("x", 2)) {
		t.Error("only process 2 fires")
	}
	if fire(b, "x", 1, 69) || !fire(b, "x", 1, 70) {
		t.Error("the cool-down ends a minute after the alert cleared")
	}
	type change struct {
		pid     uint32
		state   string
		time    int
		repeats uint64
		to      uint64
	}
	want := []change{{1, Firing, 0, 0, 0}, {2, Firing, 6, 0, 0}, {1, Cleared, 10, 1, 5}, {1, Firing, 70, 0, 0}}
	var got []change
	var ids []string
	for _, a := range b.Changes() {
		pid := uint32(1)
		second := keyOf("x", 2)
		if a.ID == second.ID(at(6)) {
			pid = 2
		}
		got = append(got, change{pid, a.State, int(a.Time.Sub(at(0)).Seconds()), a.Repeats, a.Evidence.SeqTo})
		ids = append(ids, a.ID)
	}
	if !reflect.DeepEqual(got, want) || ids[0] != ids[2] || ids[0] == ids[3] || ids[0] == ids[1] {
		t.Errorf("got %+v with ids %q, want %+v", got, ids, want)
	}
	if again := b.Changes(); len(again) != 0 {
		t.Errorf("changes are reported twice: %+v", again)
	}
	if got := suppressions(b); got != "1 1 0" {
		t.Errorf("suppressed %s, want 1 repetition and 1 in the cool-down", got)
	}
	all := b.Alerts()
	if len(all) != 3 || all[1].State != Cleared || all[1].Repeats != 2 ||
		all[1].Message != "It ran out of memory. Cleared: an allocation succeeded." || !all[1].Since.Equal(at(0)) {
		t.Errorf("got %+v", all)
	}
}

// The ends of processes and the passing of time clear the right alerts.
func TestClearByProcessAndAge(t *testing.T) {
	t.Parallel()
	b := NewBook(Config{Family: "anomaly"})
	fire(b, "x", 1, 0)
	fire(b, "x", 2, 1)
	other := keyOf("x", 1)
	other.Rule = "alloc_size"
	b.Fire(other, at(2), 1, some)
	b.ClearProcess(other.Process, at(3), "the process ended", func(rule string) bool { return rule == "oom" })
	if b.Fires(other) || !b.Fires(keyOf("x", 1)) || !b.Fires(keyOf("x", 2)) {
		t.Error("the end of process 1 must clear alloc_size alone")
	}
	id := snapshot.HostID{Cluster: "c", Host: "x"}
	b.ClearAged(id, "oom", 10*time.Second, at(10), "ten seconds passed")
	if b.Fires(keyOf("x", 1)) || !b.Fires(keyOf("x", 2)) {
		t.Error("only the older alert is ten seconds old")
	}
	b.Changes()
	b.Forget(id)
	if cleared := b.Changes(); len(cleared) != 1 || cleared[0].State != Cleared || len(b.Alerts()) != 0 ||
		b.firing != 0 || len(b.Hosts()) != 0 {
		t.Errorf("after Forget: %d alerts, %d firing, changes %+v", len(b.Alerts()), b.firing, cleared)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := NewBook(Config{Family: "anomaly"})
	for i := range 105 {
		fire(b, "x", uint32(i), i)
	}
	if b.firing != maxFiringPerHost || suppressions(b) != "0 0 5" {
		t.Errorf("%d alerts of a host fire, suppressed %s", b.firing, suppressions(b))
	}
	for host := range 200 {
		for i := range 60 {
			fire(b, fmt.Sprint("host-", host), uint32(i), i)
		}
	}
	if b.firing != maxFiring {
		t.Errorf("%d alerts fire, want %d", b.firing, maxFiring)
	}
	for host := range 200 {
		for i := range 60 {
			b.Clear(keyOf(fmt.Sprint("host-", host), uint32(i)), at(1000*i+host), "it is over")
		}
	}
	var oldest time.Time
	for _, e := range b.cleared[:1] {
		oldest = e.Time
	}
	// Of 9,900 alerts that cleared at second 1000 i + host, hosts 0 to 164 have all 60 and the rest none.
	if want := at(1000*53 + 155); len(b.cleared) != maxCleared || !oldest.Equal(want) ||
		len(b.Alerts()) != maxCleared+maxFiringPerHost {
		t.Errorf("%d cleared alerts, the oldest of %s, want %s; %d in all", len(b.cleared), oldest, want,
			len(b.Alerts()))
	}
}

// sections returns the saved hosts of a Book.
func sections(b *Book) []snapshot.Section {
	var all []snapshot.Section
	err := form(b).Save(&snapshot.Writer{}, b.Hosts(), func(s snapshot.Section) error {
		s.Data = bytes.Clone(s.Data)
		all = append(all, s)
		return nil
	})
	if err != nil {
		panic(err)
	}
	return all
}

func form(b *Book) snapshot.Form {
	return snapshot.Form{Fold: "test", Version: 1, Lock: &sync.Mutex{}, Shard: b.CodeShard, Host: b.CodeHost}
}

// Hosts of two Books may be joined in any order. The alerts that cleared last stay.
func TestJoin(t *testing.T) {
	t.Parallel()
	var saved []snapshot.Section
	for i, host := range []string{"x", "y"} {
		b := NewBook(Config{Family: "anomaly"})
		for n := range 800 {
			fire(b, host, uint32(n), n)
			b.Clear(keyOf(host, uint32(n)), at(10_000+2*n+i), "it is over")
		}
		fire(b, host, 5000, 1)
		saved = append(saved, sections(b)[1:]...)
	}
	var views [2][]Alert
	for i := range views {
		b := NewBook(Config{Family: "anomaly"})
		for _, s := range saved {
			if err := form(b).Restore(s); err != nil {
				t.Fatal(err)
			}
		}
		if len(b.Changes()) != 0 {
			t.Error("restored alerts are reported as changes")
		}
		views[i] = b.Alerts()
		again := NewBook(Config{Family: "anomaly"})
		for _, s := range sections(b) {
			if err := form(again).Restore(s); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(again.Alerts(), views[i]) || again.firing != 2 {
			t.Error("a saved and restored Book shows other alerts")
		}
		slices.Reverse(saved)
	}
	if !reflect.DeepEqual(views[0], views[1]) || len(views[0]) != maxCleared+2 || !views[0][2].Time.Equal(at(10_600)) {
		t.Errorf("%d and %d alerts, from %s", len(views[0]), len(views[1]), views[0][2].Time)
	}
}

func TestDamagedAlertsAreRefused(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b *Book){
		"an unknown state": func(b *Book) {
			b.hosts[snapshot.HostID{Cluster: "c", Host: "x"}].entries[0].State = "odd"
		},
		"twice the same alert": func(b *Book) {
			p := b.hosts[snapshot.HostID{Cluster: "c", Host: "x"}]
			p.entries = append(p.entries, p.entries[0])
		},
	} {
		b := NewBook(Config{Family: "anomaly"})
		fire(b, "x", 1, 1)
		damage(b)
		into := NewBook(Config{Family: "anomaly"})
		if err := form(into).Restore(sections(b)[1]); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", name, err)
		}
	}
}

// scraped makes a Book a collector, as a fold does.
type scraped struct{ *Book }

func (s scraped) Collect(to chan<- prometheus.Metric) { s.Metrics()(to) }

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := NewBook(Config{Family: "anomaly"})
	for pid := range uint32(3) {
		k := keyOf("gpu-01", pid)
		b.Fire(k, at(0), 1, func() Alert { return Alert{Severity: Warning, Comm: "train", GPU: "GPU-1"} })
		if pid > 0 {
			b.Clear(k, at(0), "it is over")
		}
	}
	b.Fire(keyOf("gpu-02", 1), at(0), 1, some)
	b.Clear(keyOf("gpu-02", 1), at(0), "it is over")
	want := func(host, comm, uuid, severity string, active, events int) (lines string) {
		labels := fmt.Sprintf(`{UUID=%q,cluster="c",comm=%q,container="",gpu="",hostname=%q,job="",pod="",rule="oom",`+
			`severity=%q,unit="",user=""}`, uuid, comm, host, severity)
		if active >= 0 {
			lines = fmt.Sprintf("gputap_anomaly_active%s %d\n", labels, active)
		}
		return lines + fmt.Sprintf("gputap_anomaly_events_total%s %d\n", labels, events)
	}
	check := func(lines string) {
		t.Helper()
		page := consumertest.Page(t, scraped{b})
		for line := range strings.Lines(lines) {
			if !strings.Contains(string(page), line) {
				t.Errorf("no %q in\n%s", line, page)
			}
		}
		if strings.Count(lines, "_active{") != strings.Count(string(page), "_active{") {
			t.Errorf("too many active series in\n%s", page)
		}
		if problems, err := promlint.New(bytes.NewReader(page)).Lint(); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
	}
	check(want("gpu-01", "train", "GPU-1", Warning, 1, 3) + want("gpu-02", "train", "", Critical, 0, 1))
	b.Advance(snapshot.HostID{Cluster: "c", Host: "gpu-02"}, at(300))
	check(want("gpu-01", "train", "GPU-1", Warning, 1, 3) + want("gpu-02", "train", "", Critical, -1, 1))
}

// Series above the limit count as comm="other", and no alert is missing in the sums.
func TestSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	b := NewBook(Config{Family: "anomaly"})
	const hosts, each = 30, 90
	for host := range hosts {
		for i := range each {
			b.Fire(keyOf(fmt.Sprint("host-", host), uint32(i)), at(i), 1, func() Alert {
				return Alert{Severity: Critical, Comm: fmt.Sprintf("job-%d-%d", host, i)}
			})
		}
	}
	for family, want := range map[string]int{"gputap_anomaly_active{": hosts * each,
		"gputap_anomaly_events_total{": hosts * each} {
		series, sum := 0, 0
		for line := range strings.Lines(string(consumertest.Page(t, scraped{b}))) {
			if strings.HasPrefix(line, family) {
				var n int
				fmt.Sscan(line[strings.LastIndexByte(line, ' '):], &n)
				series, sum = series+1, sum+n
			}
		}
		if sum != want || series > process.MaxSeries {
			t.Errorf("%s: %d series of %d alerts, want at most %d of %d", family, series, sum, process.MaxSeries, want)
		}
	}
}

// The JSON keys are a contract.
func TestJSONKeys(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(Alert{Start: time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for part := range strings.SplitSeq(string(data), `"`) {
		if strings.Trim(part, `{}:,0123456789 `) != "" && !strings.Contains(part, "T00:") {
			keys = append(keys, part)
		}
	}
	want := "id state time since rule severity host cluster pid start comm container pod unit job uid user tid " +
		"thread_comm address bytes gpu symbol value baseline score repeats message evidence host boot run kind seq " +
		"seq_from seq_to"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

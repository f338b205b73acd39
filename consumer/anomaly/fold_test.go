package anomaly

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Seed 001's anomaly: four threads allocate 10 MB each time, one of them 2,096 MB once. Later it runs out of memory.
func TestSeedAnomaly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule.Config{})
	var published []Alert
	w.d.onAlert = func(a Alert) {
		published = append(published, a)
		_ = w.d.Alerts() // does not block: the lock is free
	}
	p := w.host.Process(603409, second/2, "python")
	p.UID, p.User, p.Container, p.GPU = 1000, "ann", "c0ffee", &schema.GPU{UUID: "GPU-1", Bytes: 32 * gib}
	p.Pod, p.Job = "6f1d1a2e-0000-4000-8000-000000000001", "slurm:4711"
	for i := range 16 {
		p.Alloc(uint32(100+i%4), 0x1000000+uint64(i)<<24, 10*mb, schema.KTime(i+1)*second, 500)
	}
	p.Alloc(100, 0x735467000000, 2096*mib, 20*second, 500)
	w.tick(30, 60)
	p.Fail("cuMemAlloc_v2", 101, 2, 40<<30, 65*second)
	p.Alloc(101, 0x735667000000, 20<<30, 66*second, 500)
	p.Fail("cuMemAlloc_v2", 101, 2, 40<<30, 70*second)
	p.Exit(75 * second)
	w.tick(80, 80)
	got, err := json.MarshalIndent(published, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	consumertest.GoldenFile(t, "testdata/alerts.json", append(got, '\n'))
	page := consumertest.Page(t, w.d)
	consumertest.GoldenFile(t, "testdata/metrics.txt", page)
	if problems, err := promlint.New(bytes.NewReader(page)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// Everything that the fold kept of a host goes with it, and its alerts clear.
func TestForgottenHostLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	empty := consumertest.Sections(t, w.d)
	p := w.process(42, "train")
	w.allocs(p, 16, 10*mb, 2)
	w.alloc(p, 2*gib, 4)
	p.Call("cuMemHostAlloc", 1, schema.Memory{Time: ktime(5), Ptr: 1 << 30, Bytes: gib})
	w.copies(p, 2, copying{schema.HtoD, false, 40, 4 * mib, 24, 0}, 20)
	w.tick(40, 60)
	w.d.Forget("test", "gpu-01")
	w.want(odd, oddGone)
	saved := consumertest.Sections(t, w.d)
	if len(saved) != len(empty) || len(w.d.Alerts()) != 0 {
		t.Errorf("%d sections and %d alerts are left", len(saved), len(w.d.Alerts()))
	}
}

// A process that is forgotten, and the processes of an earlier boot, have no alert that fires.
func TestAlertsEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	oddProcess := func(w *world) *consumertest.Process {
		p := w.process(42, "train")
		w.allocs(p, 16, 10*mb, 2)
		w.alloc(p, 2*gib, 4)
		w.tick(10, 60)
		return p
	}
	t.Run("silent for a day", func(t *testing.T) {
		w := newWorld(t, everything)
		oddProcess(w)
		w.alloc(w.process(43, "other"), 1, 90_000)
		w.flush()
		w.alloc(w.process(43, "other"), 1, 90_100)
		w.flush()
		w.want(odd, oddGone)
	})
	t.Run("a reboot", func(t *testing.T) {
		w := newWorld(t, everything)
		oddProcess(w)
		w.host.Header.BootID, w.host.Header.ClockOffset = "boot-2", w.host.Header.ClockOffset+1e12
		w.alloc(w.process(43, "other"), 1, 5)
		w.tick(20, 30)
		w.want(odd, oddGone)
	})
}

// A batch of an earlier boot comes late, from an outbox. It changes nothing in the windows of this boot.
func TestLateBatchOfEarlierBootIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	old := w.host.Header
	w.host.Header.BootID, w.host.Header.ClockOffset = "boot-2", w.host.Header.ClockOffset+1e12
	w.alloc(w.process(42, "train"), 1, 2)
	w.flush()
	before := consumertest.Sections(t, w.d)
	late := w.host.Header
	w.host.Header = old
	w.host.Header.Lost[schema.LossSpool] = 1000
	w.fail(w.process(42, "train"), gib, 5)
	w.flush()
	w.host.Header = late
	if after := consumertest.Sections(t, w.d); !bytes.Equal(before[1].Data, after[1].Data) {
		t.Error("the state of the host has changed")
	}
}

func TestSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule.Config{})
	const processes = 2500
	for i := range uint32(processes) {
		p := w.process(100+i, fmt.Sprintf("job-%d", i))
		w.fail(p, gib, 2)
		p.Exit(ktime(3))
	}
	w.tick(10, 10)
	fired := 0
	for _, a := range w.changes {
		if a.State == alert.Firing {
			fired++
		}
	}
	if n := w.suppressed("oom", "limit"); fired != 100 || fired+n != processes {
		t.Errorf("%d alerts of one host fire, %d are suppressed; want 100 of %d", fired, n, processes)
	}
	if n := strings.Count(string(consumertest.Page(t, w.d)), "gputap_anomaly_events_total{"); n >= process.MaxSeries {
		t.Errorf("%d series", n)
	}
}

// Equal batches give equal alerts, with equal ids.
func TestSameBytesSameAlerts(t *testing.T) {
	t.Parallel()
	var alerts [2][]Alert
	for i := range alerts {
		w := newWorld(t, everything)
		for n := range 30 {
			p := w.process(uint32(42+n%3), "train")
			w.allocs(p, 40, 10*mb, float64(100*n+2))
			w.alloc(p, uint64(n+1)<<30, float64(100*n+50))
			w.fail(p, 1<<40, float64(100*n+60))
			w.tick(float64(100*n+70), float64(100*n+100))
		}
		alerts[i] = w.changes
	}
	if len(alerts[0]) < 6 || !reflect.DeepEqual(alerts[0], alerts[1]) {
		t.Errorf("%d and %d alerts that differ", len(alerts[0]), len(alerts[1]))
	}
}

// Rules that are off need no batches of other kinds.
func TestKindsFollowFromTheRules(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rules rule.Config
		want  []schema.Kind
	}{
		{rule.Config{}, []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindTensor,
			schema.KindHost}},
		{only(func(c *rule.Config) { c.OOM.Mode = rule.Alert }),
			[]schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindTensor, schema.KindHost}},
		{rule.Config{Mode: rule.Off}, []schema.Kind{schema.KindMemory, schema.KindHost}},
		{only(func(c *rule.Config) { c.CopyRegression.Mode = rule.Alert }),
			[]schema.Kind{schema.KindMemory, schema.KindCopy, schema.KindHost}},
		{only(func(c *rule.Config) { c.AllocRate.Mode = rule.Observe }),
			[]schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindHost}},
	} {
		if got := New(Config{Rules: test.rules}).Kinds(); !slices.Equal(got, test.want) {
			t.Errorf("%+v: kinds %v, want %v", test.rules, got, test.want)
		}
	}
}

// After a silence of the heartbeats, windows that were displaced are not judged, and the fold goes on.
func TestSilenceOfHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	p := w.process(42, "train")
	at := w.phases(p, phase{40, 100_000, 300})
	for range 200 { // no tick
		w.launch(p, 100_000, at+2)
		at += 10
	}
	w.tick(at, at)
	at += 10
	for range 30 {
		w.launch(p, 100_000, at+2)
		at += 10
		w.tick(at, at)
	}
	w.want()
	for range 20 {
		w.launch(p, 10_000, at+2)
		at += 10
		w.tick(at, at)
	}
	w.want(collapse)
	if took := w.changes[0].Time.Sub(w.changes[0].Since); took != 3*time.Minute {
		t.Errorf("it took %s to find the collapse, want three minutes", took)
	}
}

package anomaly

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	mb     = 1_000_000
	mib    = 1 << 20
	gib    = 1 << 30
	second = schema.KTime(time.Second)
)

// world is a host with a fold. Times are seconds of the host.
type world struct {
	tb       testing.TB
	cfg      Config
	d        *Detector
	host     *consumertest.Host
	seq      [schema.NumKinds]uint64
	changes  []Alert
	disturb  bool // saves and restores the fold before each tick
	nextAddr uint64
}

func newWorld(tb testing.TB, rules rule.Config) *world {
	w := &world{tb: tb, host: consumertest.Memory(tb, "gpu-01"), nextAddr: 1 << 40}
	w.cfg = Config{Rules: rules, OnAlert: func(a Alert) { w.changes = append(w.changes, a) }}
	w.d = New(w.cfg)
	return w
}

// only returns a configuration in which one rule alerts and the others are off, except for those given.
func only(set func(c *rule.Config)) rule.Config {
	c := rule.Config{}
	for _, mode := range []*rule.Mode{&c.AllocSize.Mode, &c.OOM.Mode, &c.AllocRate.Mode, &c.LaunchCollapse.Mode,
		&c.CopyRegression.Mode, &c.PageableCopies.Mode, &c.TelemetryLoss.Mode} {
		*mode = rule.Off
	}
	set(&c)
	return c
}

// everything is the configuration in which every rule alerts.
var everything = rule.Config{Mode: rule.Alert}

func (w *world) process(pid uint32, comm string) *consumertest.Process {
	p := w.host.Process(pid, second, comm)
	p.GPU = &schema.GPU{UUID: "GPU-1", Bytes: 80 * gib}
	return p
}

// alloc adds an allocation at a new address, and returns the address.
func (w *world) alloc(p *consumertest.Process, bytes uint64, at float64) uint64 {
	w.nextAddr += 1 << 38
	p.Alloc(p.PID, w.nextAddr, bytes, ktime(at), 500)
	return w.nextAddr
}

func ktime(seconds float64) schema.KTime { return schema.KTime(seconds * 1e9) }

// flush applies the memory events that were added since.
func (w *world) flush() { w.apply(w.host.Batch()) }

func (w *world) apply(b *schema.Batch) {
	w.tb.Helper()
	if err := w.d.Apply(b); err != nil {
		w.tb.Fatal(err)
	}
}

// tick flushes, and ticks every ten seconds up to a time, the time included.
func (w *world) tick(from, to float64) {
	w.flush()
	for at := from; at <= to; at += 10 {
		if w.disturb {
			w.restore()
		}
		w.d.Tick(&w.host.Header, ktime(at))
	}
}

// restore replaces the fold by one that was restored from its snapshot.
func (w *world) restore() {
	w.tb.Helper()
	saved := consumertest.Sections(w.tb, w.d)
	again := consumertest.Restore(w.tb, New(w.cfg), saved)
	for i, s := range consumertest.Sections(w.tb, again) {
		if !bytes.Equal(s.Data, saved[i].Data) {
			w.tb.Fatalf("section %d is saved differently after it was restored", i)
		}
	}
	w.d = again
}

// send applies a batch of another kind than memory.
func (w *world) send(b *schema.Builder, kind schema.Kind) {
	header := w.host.Header
	w.seq[kind]++
	header.Seq = w.seq[kind]
	w.apply(consumertest.Decode(w.tb, slices.Clone(b.Encode(&header))))
}

func threadOf(b *schema.Builder, p *consumertest.Process) uint32 {
	return b.Thread(schema.Thread{Process: b.Process(p.Process), TID: p.PID, Comm: p.Comm})
}

// launch adds n kernels at a time, as one launch of a graph.
func (w *world) launch(p *consumertest.Process, n uint32, at float64) {
	b := schema.NewBuilder(schema.KindLaunch)
	f := b.Func(schema.Func{Handle: 9})
	b.Graph(schema.Graph{Func: f, Nodes: []schema.Node{{Func: b.Func(schema.Func{Name: "k"}), Count: n}}})
	shape := b.Shape(schema.LaunchShape{Func: f,
		Call: b.Call(schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch})})
	b.AddLaunch(&schema.Launch{Time: ktime(at), Thread: threadOf(b, p), Shape: shape, CUDAStream: b.CUDAStream(0)})
	w.send(b, schema.KindLaunch)
}

// copying describes the copies of one batch.
type copying struct {
	direction schema.Direction
	async     bool
	n         int
	bytes     uint64
	rate      float64 // GB/s
	memory    schema.HostMem
}

func (w *world) copy(p *consumertest.Process, c copying, at float64) {
	b := schema.NewBuilder(schema.KindCopy)
	ref := schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: c.direction}
	if c.async {
		ref = schema.CallRef{Symbol: "cuMemcpyHtoDAsync_v2", Op: schema.OpCopyAsync, Direction: c.direction}
	}
	for i := range c.n {
		e := schema.Copy{Time: ktime(at) + schema.KTime(i)*1000, Duration: uint64(float64(c.bytes) / c.rate),
			Thread: threadOf(b, p), Call: b.Call(ref), Bytes: c.bytes, HostMem: c.memory,
			CUDAStream: b.CUDAStream(0)}
		if p.GPU != nil {
			e.GPU = b.GPU(*p.GPU)
		}
		b.AddCopy(&e)
	}
	w.send(b, schema.KindCopy)
}

// found returns the alerts that fired or cleared, as rule:severity:state:pid.
func (w *world) found() (all []string) {
	for _, a := range w.changes {
		all = append(all, fmt.Sprintf("%s %s %s %d", a.Rule, a.Severity, a.State, a.PID))
	}
	return all
}

// want compares what was found.
func (w *world) want(want ...string) {
	w.tb.Helper()
	if got := w.found(); !slices.Equal(got, want) {
		w.tb.Errorf("got  %q\nwant %q", got, want)
		for _, a := range w.changes {
			w.tb.Log(a.Message)
		}
	}
	for _, a := range w.d.Alerts() {
		if a.ID == "" || a.Message == "" || a.Evidence.Boot == "" || a.Evidence.Host != "gpu-01" ||
			a.Evidence.SeqFrom == 0 || a.Evidence.SeqFrom > a.Evidence.SeqTo || a.Evidence.Kind == "" ||
			a.Since.After(a.Time) {
			w.tb.Errorf("incomplete alert %+v", a)
		}
	}
}

// suppressed returns how many findings of a rule were suppressed for a reason.
func (w *world) suppressed(rule, reason string) (n int) {
	line := fmt.Sprintf("gputap_anomaly_suppressed_total{reason=%q,rule=%q} ", reason, rule)
	for l := range bytes.Lines(consumertest.Page(w.tb, w.d)) {
		if rest, ok := bytes.CutPrefix(l, []byte(line)); ok {
			fmt.Sscan(string(rest), &n)
		}
	}
	return n
}

// scenario is a program with what must be found. Each runs with an undisturbed fold and with one that is saved and
// restored before each tick.
type scenario struct {
	name  string
	rules rule.Config
	run   func(w *world, p *consumertest.Process)
	want  []string
}

func (s scenario) test(t *testing.T) {
	t.Run(s.name, func(t *testing.T) {
		t.Parallel()
		var views [2][]Alert
		for i := range views {
			w := newWorld(t, s.rules)
			w.disturb = i == 1
			s.run(w, w.process(42, "train"))
			w.want(s.want...)
			views[i] = w.d.Alerts()
		}
		if fmt.Sprintf("%+v", views[0]) != fmt.Sprintf("%+v", views[1]) {
			t.Errorf("a fold that was restored shows\n%+v\nwant\n%+v", views[1], views[0])
		}
	})
}

const (
	firing  = " " + alert.Firing + " 42"
	cleared = " " + alert.Cleared + " 42"
)

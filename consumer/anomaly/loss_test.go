package anomaly

import (
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	lossy     = "telemetry_loss warning firing 0"
	lossyOver = "telemetry_loss warning cleared 0"
)

// busy adds n events and ticks, once every ten seconds.
func (w *world) busy(p *consumertest.Process, windows, n int, at float64) float64 {
	for range windows {
		for i := range n {
			p.Free(1, 1<<20, ktime(at+float64(i)/1e6), 1)
		}
		at += 10
		w.tick(at, at)
	}
	return at
}

func TestTelemetryLoss(t *testing.T) {
	t.Parallel()
	// losing returns a program of which so many events get lost after the first windows.
	losing := func(cause schema.Loss, n uint64, quiet int) func(*world, *consumertest.Process) {
		return func(w *world, p *consumertest.Process) {
			at := w.busy(p, 3, 1000, 20)
			w.host.Header.Lost[cause] += n
			at = w.busy(p, 1, 1000, at)
			w.busy(p, quiet, 1000, at)
		}
	}
	for _, s := range []scenario{
		{"a full ring", everything, losing(schema.LossControlRing, 5000, 2), []string{lossy}},
		{"a full spool, and a minute without loss", everything, losing(schema.LossSpool, 10, 6),
			[]string{lossy, lossyOver}},
		{"a missing batch", everything, func(w *world, p *consumertest.Process) {
			at := w.busy(p, 3, 1000, 20)
			w.d.Lost("test", "gpu-01", "boot-1", 1)
			w.busy(p, 1, 1000, at)
		}, []string{lossy}},
		{"again and again, in one alert", everything, func(w *world, p *consumertest.Process) {
			at := 20.0
			for range 20 {
				w.host.Header.Lost[schema.LossBulkRing] += 100
				at = w.busy(p, 2, 1000, at)
			}
		}, []string{lossy}},
		{"of a producer that was restarted", everything, func(w *world, p *consumertest.Process) {
			w.host.Header.Lost[schema.LossBulkRing] = 500
			at := w.busy(p, 3, 1000, 20)
			w.host.Header.Run, w.host.Header.Lost[schema.LossBulkRing] = 25e9, 400
			w.busy(p, 1, 1000, at)
		}, []string{lossy}},
		{"a reboot while it fires: the clock begins anew", everything, func(w *world, p *consumertest.Process) {
			at := w.busy(p, 1, 1000, 1e6)
			w.host.Header.Lost[schema.LossBulkRing] += 5000
			w.busy(p, 1, 1000, at)
			w.host.Header.BootID, w.host.Header.ClockOffset = "boot-2", w.host.Header.ClockOffset+1e16
			w.host.Header.Lost[schema.LossBulkRing] = 0
			w.busy(p, 8, 1000, 20)
		}, []string{lossy, lossyOver}},
		{"mode observe", rule.Config{Mode: rule.Observe}, losing(schema.LossControlRing, 5000, 2),
			[]string{"telemetry_loss info firing 0"}},

		{"losses before the fold began", everything, func(w *world, p *consumertest.Process) {
			w.host.Header.Lost[schema.LossBulkRing] = 500
			w.busy(p, 3, 1000, 20)
		}, nil},
		{"nine events", everything, losing(schema.LossUnpaired, 9, 6), nil},
		{"less than a thousandth", everything, func(w *world, p *consumertest.Process) {
			at := w.busy(p, 3, 12_000, 20)
			w.host.Header.Lost[schema.LossBulkRing] += 11
			w.busy(p, 3, 12_000, at)
		}, nil},
		{"a restart without losses", everything, func(w *world, p *consumertest.Process) {
			at := w.busy(p, 3, 1000, 20)
			w.host.Header.Run = 25e9
			w.busy(p, 3, 1000, at)
		}, nil},
		{"a reboot", everything, func(w *world, p *consumertest.Process) {
			w.host.Header.Lost[schema.LossBulkRing] = 500
			at := w.busy(p, 3, 1000, 20)
			w.host.Header.BootID, w.host.Header.ClockOffset = "boot-2", w.host.Header.ClockOffset+1e12
			w.host.Header.Lost[schema.LossBulkRing] = 0
			w.busy(p, 3, 1000, at)
		}, nil},
	} {
		s.test(t)
	}
}

// An alert that fires when its rule is switched off, or its process is excluded, clears at the next tick: nothing else
// would end it.
func TestAlertThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	fired := []string{lossy, outOf}
	for _, row := range []struct {
		off     func(*rule.Config)
		cleared []string
	}{
		{func(c *rule.Config) { c.Mode = rule.Off }, []string{outOfOver, lossyOver}},
		{func(c *rule.Config) { c.Exclude.Comm = []string{"oom=train"} }, []string{outOfOver}},
		{func(c *rule.Config) { c.Exclude.Comm = []string{"alloc_size=train"} }, nil},
	} {
		w := newWorld(t, everything)
		p := w.process(42, "train")
		at := w.busy(p, 3, 1000, 20)
		w.host.Header.Lost[schema.LossControlRing] += 5000
		w.fail(p, 40*gib, at)
		at = w.busy(p, 3, 1000, at)
		w.want(fired...)
		row.off(&w.cfg.Rules)
		w.restore()
		w.busy(p, 1, 1000, at)
		w.want(slices.Concat(fired, row.cleared)...)
	}
}

// The messages name causes and counts: of the first ticks, and of the whole time when the alert clears.
func TestTelemetryLossSaysWhatWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	p := w.process(42, "train")
	at := w.busy(p, 1, 1000, 20)
	w.host.Header.Lost[schema.LossControlRing] += 70
	w.host.Header.Lost[schema.LossSpool] += 30
	at = w.busy(p, 1, 1000, at)
	w.d.Lost("test", "gpu-01", "boot-1", 3)
	at = w.busy(p, 1, 1000, at)
	w.busy(p, 6, 1000, at)
	w.want(lossy, lossyOver)
	for i, want := range []string{"70 events (control_ring), 30 events (spool) of gpu-01 were lost, beside 1000 events",
		"70 events (control_ring), 30 events (spool), 3 batches were lost in all"} {
		if got := w.changes[i].Message; !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

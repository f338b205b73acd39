package rule

import (
	"fmt"
	"math"
	"strings"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// telemetryLoss finds hosts of which events were lost: other rules do not judge the windows concerned.
//
// It fires when batches are missing, or when the loss counters of the producer grow by ten events and by a thousandth
// of the events between two ticks. It clears after the time Quiet without loss.
type telemetryLoss struct {
	base
	TelemetryLoss
}

const (
	minLost      = 10
	lossFraction = 1000
)

// losses are the losses of one host.
type losses struct {
	lost    [schema.NumLosses]uint64 // since the last tick
	missing uint64                   // batches since the last tick
	events  uint64                   // that arrived since the last tick
	total   [schema.NumLosses]uint64 // since the alert fired
	batches uint64                   // since the alert fired
	missed  uint64                   // batches since the last batch
	firing  bool
	last    schema.KTime // the tick that saw the last loss

	kind      schema.Kind // of the last batch that reported a loss
	run       uint64
	from, seq uint64 // the first such batch since the last tick, and the last
}

// reported records the batch that reported a loss.
func (l *losses) reported(b *schema.Header) {
	if l.from == 0 || l.kind != b.Kind || l.run != b.Run {
		l.from = b.Seq
	}
	l.kind, l.run, l.seq = b.Kind, b.Run, b.Seq
}

func (r *telemetryLoss) Tick(t *Tick) {
	l, sum := &t.Host.loss, uint64(0)
	for _, n := range l.lost {
		sum += n
	}
	k := alert.Key{Rule: r.name}
	k.Process.Cluster, k.Process.Host = t.Cluster, t.Header.Host
	odd := l.missing > 0 || sum >= minLost && sum >= l.events/lossFraction
	switch {
	case odd:
		l.last = t.Through
		for cause, n := range l.lost {
			l.total[cause] += n
		}
		l.batches += l.missing
		l.firing = true
		r.raise(k, t.now(), l.seq, func() alert.Alert { return l.describe(t, sum) })
	case l.firing && elapsed(l.last, t.Through) >= r.Quiet:
		r.set.book.Clear(k, t.now(), fmt.Sprintf("nothing was lost for %s; %s were lost in all", r.Quiet,
			amounts(&l.total, l.batches)))
		l.firing, l.total, l.batches = false, [schema.NumLosses]uint64{}, 0
	}
	l.lost, l.missing, l.events, l.from = [schema.NumLosses]uint64{}, 0, 0, 0
}

func (l *losses) describe(t *Tick, sum uint64) alert.Alert {
	a := alert.Alert{Severity: alert.Warning, Value: float64(sum), Baseline: float64(l.events)}
	if l.events > 0 {
		a.Score = math.Round(1e4*a.Value/a.Baseline) / 1e4
	}
	a.Evidence = alert.Evidence{Boot: t.Host.boot, Run: l.run, Kind: l.kind.String(), Seq: l.seq, SeqFrom: l.from,
		SeqTo: l.seq}
	a.Message = fmt.Sprintf("%s of %s were lost, beside %d events that arrived. The figures of this time are too low. "+
		"A full ring needs a larger producer.ring_bytes or fewer features; a full spool needs NATS or an outbox.",
		amounts(&l.lost, l.missing), t.Header.Host, l.events)
	return a
}

// amounts formats losses by cause.
func amounts(lost *[schema.NumLosses]uint64, batches uint64) string {
	var parts []string
	for cause, n := range lost {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d events (%s)", n, schema.Loss(cause)))
		}
	}
	if batches > 0 {
		parts = append(parts, fmt.Sprintf("%d batches", batches))
	}
	return strings.Join(parts, ", ")
}

func (l *losses) code(c *snapshot.Codec) {
	codeLosses(c, &l.lost)
	codeLosses(c, &l.total)
	snapshot.Uint(c, &l.missing, &l.missed, &l.events, &l.batches, &l.run, &l.from, &l.seq)
	snapshot.Uint(c, &l.last)
	kind := int(l.kind)
	c.Below(&kind, int(schema.NumKinds))
	l.kind = schema.Kind(kind)
	c.Bool(&l.firing)
}

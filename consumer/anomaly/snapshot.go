package anomaly

import (
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (d *Detector) Snapshot(yield func(snapshot.Section) error) error {
	alerts := map[snapshot.HostID][]numbered{}
	for _, a := range d.history.kept {
		alerts[a.host()] = append(alerts[a.host()], a)
	}
	hosts := slices.Concat(d.table.Hosts(), d.raised.Hosts(), slices.Collect(maps.Keys(alerts)))
	return d.form(alerts).Save(&d.out, hosts, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply. Restored alerts are
// not raised again.
func (d *Detector) Restore(section snapshot.Section) error { return d.form(nil).Restore(section) }

func (d *Detector) form(alerts map[snapshot.HostID][]numbered) snapshot.Form {
	return snapshot.Form{
		Fold: "anomaly", Version: 1, Lock: &d.mu, Shard: d.codeShard,
		Host: func(c *snapshot.Codec, id snapshot.HostID) {
			d.raised.CodeHost(c, id, 5, func(k *raised) {
				k.HostID = id
				process.CodeLabels(c, &k.Container, &k.Comm, &k.rule, &k.severity)
			})
			d.history.code(c, id, alerts[id])
			d.table.CodeHost(c, id, func(p *proc) { p.State.code(c) })
		},
	}
}

func (d *Detector) codeShard(c *snapshot.Codec) {
	d.table.CodeShard(c)
	total := d.history.total
	snapshot.Uint(c, &total)
	d.history.total = max(d.history.total, total)
	d.raised.CodeOthers(c, 3, func(k *raised) { process.CodeLabels(c, &k.rule, &k.severity) })
	snapshot.Map(c, &d.suppressed, 3, suppressed.compare, func(k *suppressed, findings *uint64) {
		process.CodeLabels(c, &k.rule, &k.reason)
		snapshot.Uint(c, findings)
	})
}

const leastAlert = 43

// code passes over the alerts of one host.
func (h *history) code(c *snapshot.Codec, id snapshot.HostID, alerts []numbered) {
	last := uint64(0)
	snapshot.List(c, &alerts, leastAlert, func(a *numbered) {
		more := a.number - last
		snapshot.Uint(c, &more)
		last += more
		a.code(c)
		if !c.Reading() {
			return
		}
		a.number, a.Cluster, a.Host, a.Evidence.Host = last, id.Cluster, id.Host, id.Host
		if !h.insert(*a) {
			c.Fail("alert %d appears twice", last)
		}
	})
	if len(alerts) > maxAlerts {
		c.Fail("more than %d alerts", maxAlerts)
	}
}

func (a *Alert) code(c *snapshot.Codec) {
	c.Time(&a.Time, &a.Start)
	snapshot.Uint(c, &a.PID, &a.UID, &a.TID)
	snapshot.Uint(c, &a.Bytes, &a.Repeats, &a.Evidence.Seq)
	c.String(&a.Rule, &a.Severity, &a.Comm, &a.Container, &a.ThreadComm, &a.Address, &a.GPU, &a.Symbol, &a.Message,
		&a.Evidence.Boot)
	c.Float64(&a.Value, &a.Baseline, &a.Score)
}

func (s *state) code(c *snapshot.Codec) {
	l := &s.sizes
	sizes := slices.Concat(l.bytes[l.oldest:], l.bytes[:l.oldest]) // oldest first
	snapshot.List(c, &sizes, 4, func(bytes *float32) { c.Float32(bytes) })
	snapshot.Int(c, &l.outliers)
	snapshot.Uint(c, &l.lastSize)
	l.last.code(c)
	snapshot.List(c, &s.failed, 3, func(f *failed) {
		c.String(&f.symbol)
		f.code(c)
	})
	if len(sizes) > maxSamples || len(s.failed) > maxFailed {
		c.Fail("%d samples and %d calls, at most %d and %d", len(sizes), len(s.failed), maxSamples, maxFailed)
	}
	if c.Reading() {
		l.bytes = sizes
	}
}

func (l *cooldown) code(c *snapshot.Codec) {
	snapshot.Uint(c, &l.since)
	snapshot.Uint(c, &l.alert)
}

package anomaly

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

var form = snapshot.Form{Fold: "anomaly", Version: 1}

// hostState is the state of one host besides its processes.
type hostState struct {
	raised []raisedID
	alerts []*numbered
}

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (d *Detector) Snapshot(yield func(snapshot.Section) error) error {
	hosts, of := map[snapshot.HostID]bool{}, map[snapshot.HostID]hostState{}
	d.table.Hosts(hosts)
	for k := range d.raised {
		h := of[k.HostID]
		h.raised = append(h.raised, k.raisedID)
		hosts[k.HostID], of[k.HostID] = true, h
	}
	for i := range d.history.kept {
		a := &d.history.kept[i]
		id := a.host()
		h := of[id]
		h.alerts = append(h.alerts, a)
		hosts[id], of[id] = true, h
	}
	return form.Save(&d.out, hosts, snapshot.Parts[*snapshot.Writer]{
		Lock:  &d.mu,
		Shard: d.saveShard,
		Host: func(w *snapshot.Writer, id snapshot.HostID) {
			d.saveHost(w, id, of[id])
			d.table.SaveHost(w, id, func(p *proc) { p.State.save(w) })
		},
	}, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply. Restored alerts are
// not raised again.
func (d *Detector) Restore(section snapshot.Section) error {
	return form.Restore(section, snapshot.Parts[*snapshot.Reader]{
		Lock:  &d.mu,
		Shard: d.restoreShard,
		Host: func(r *snapshot.Reader, id snapshot.HostID) {
			d.restoreHost(r, id)
			d.table.RestoreHost(r, id, func(p *proc) { p.State.restore(r) })
		},
	})
}

func (a raisedID) compare(b raisedID) int {
	return cmp.Or(cmp.Compare(a.container, b.container), cmp.Compare(a.comm, b.comm), cmp.Compare(a.rule, b.rule),
		cmp.Compare(a.severity, b.severity))
}

func (d *Detector) saveShard(w *snapshot.Writer) {
	d.table.SaveShard(w)
	w.Uint(d.history.total)
	others := slices.SortedFunc(maps.Keys(d.others), raisedID.compare)
	w.Uint(uint64(len(others)))
	for _, id := range others {
		w.String(id.rule)
		w.String(id.severity)
		w.Uint(d.others[id])
	}
	suppressed := slices.SortedFunc(maps.Keys(d.suppressed), func(a, b suppressedID) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.reason, b.reason))
	})
	w.Uint(uint64(len(suppressed)))
	for _, id := range suppressed {
		w.String(id.rule)
		w.String(id.reason)
		w.Uint(d.suppressed[id])
	}
}

func (d *Detector) restoreShard(r *snapshot.Reader) {
	d.table.RestoreShard(r)
	d.history.total = max(d.history.total, r.Uint())
	for range r.Each(3) {
		id := raisedID{comm: "other", rule: process.RestoreLabel(r), severity: process.RestoreLabel(r)}
		d.others[id] = r.Uint()
	}
	for range r.Each(3) {
		id := suppressedID{process.RestoreLabel(r), process.RestoreLabel(r)}
		d.suppressed[id] = r.Uint()
	}
}

func (d *Detector) saveHost(w *snapshot.Writer, id snapshot.HostID, h hostState) {
	slices.SortFunc(h.raised, raisedID.compare)
	w.Uint(uint64(len(h.raised)))
	for _, k := range h.raised {
		for _, label := range []string{k.container, k.comm, k.rule, k.severity} {
			w.String(label)
		}
		w.Uint(d.raised[raisedBy{id, k}])
	}
	w.Uint(uint64(len(h.alerts)))
	last := uint64(0)
	for _, a := range h.alerts {
		w.Uint(a.number - last)
		last = a.number
		a.save(w)
	}
}

func (d *Detector) restoreHost(r *snapshot.Reader, id snapshot.HostID) {
	for range r.Each(5) {
		k := raisedBy{id, raisedID{
			process.Label(id.Host), process.RestoreLabel(r), process.RestoreLabel(r), process.RestoreLabel(r),
			process.RestoreLabel(r),
		}}
		if d.raised[k] != 0 {
			r.Fail("a series appears twice")
			return
		}
		d.count(k, r.Uint())
	}
	last := uint64(0)
	for i := range r.Each(leastAlert) {
		a := numbered{number: last + r.Uint()}
		a.restore(r, id)
		last = a.number
		if i == maxAlerts || !d.history.insert(a) {
			r.Fail("alert %d appears twice or is above the limit", a.number)
			return
		}
	}
}

// insert stores a restored alert in order. It returns false if the host already has an alert of that number. If the
// history is full, the lowest numbers are dropped.
func (h *history) insert(a numbered) bool {
	i, taken := h.find(a.number, a.host())
	if taken || a.number+1 == 0 {
		return false
	}
	h.total = max(h.total, a.number+1)
	if len(h.kept) == maxAlerts {
		if i == 0 {
			return true
		}
		h.drop()
		i--
	}
	h.kept = slices.Insert(h.kept, i, a)
	return true
}

const leastAlert = 43

func (a *Alert) texts() []*string {
	return []*string{
		&a.Rule, &a.Severity, &a.Comm, &a.Container, &a.ThreadComm, &a.Address, &a.GPU, &a.Symbol, &a.Message,
		&a.Evidence.Boot,
	}
}

func (a *Alert) save(w *snapshot.Writer) {
	w.Time(a.Time)
	w.Time(a.Start)
	for _, n := range []uint64{uint64(a.PID), uint64(a.UID), uint64(a.TID), a.Bytes, a.Repeats, a.Evidence.Seq} {
		w.Uint(n)
	}
	for _, s := range a.texts() {
		w.String(*s)
	}
	for _, v := range []float64{a.Value, a.Baseline, a.Score} {
		w.Float64(v)
	}
}

func (a *Alert) restore(r *snapshot.Reader, id snapshot.HostID) {
	a.Cluster, a.Host, a.Evidence.Host = id.Cluster, id.Host, id.Host
	a.Time, a.Start = r.Time(), r.Time()
	a.PID, a.UID, a.TID, a.Bytes, a.Repeats, a.Evidence.Seq = r.Uint32(), r.Uint32(), r.Uint32(), r.Uint(), r.Uint(),
		r.Uint()
	for _, s := range a.texts() {
		*s = r.String()
	}
	a.Value, a.Baseline, a.Score = r.Float64(), r.Float64(), r.Float64()
}

func (s *state) save(w *snapshot.Writer) {
	l := &s.sizes
	w.Uint(uint64(len(l.bytes)))
	for i := range l.bytes { // oldest first
		w.Float32(l.bytes[(l.oldest+i)%len(l.bytes)])
	}
	w.Int(int64(l.outliers))
	w.Uint(l.lastSize)
	l.last.save(w)
	w.Uint(uint64(len(s.failed)))
	for i := range s.failed {
		w.String(s.failed[i].symbol)
		s.failed[i].save(w)
	}
}

func (s *state) restore(r *snapshot.Reader) {
	l := &s.sizes
	for i := range r.Each(4) {
		if i == maxSamples {
			r.Fail("more than %d samples", maxSamples)
			return
		}
		l.bytes = append(l.bytes, r.Float32())
	}
	l.outliers, l.lastSize = int(r.Int()), r.Uint()
	l.last.restore(r)
	for i := range r.Each(3) {
		if i == maxFailed {
			r.Fail("more than %d calls", maxFailed)
			return
		}
		f := failed{symbol: r.String()}
		f.restore(r)
		s.failed = append(s.failed, f)
	}
}

func (c *cooldown) save(w *snapshot.Writer) {
	w.Uint(uint64(c.since))
	w.Uint(c.alert)
}

func (c *cooldown) restore(r *snapshot.Reader) { *c = cooldown{schema.KTime(r.Uint()), r.Uint()} }

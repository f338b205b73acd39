package bandwidth

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

var form = snapshot.Form{Fold: "bandwidth", Version: 1}

// hostSeries is the series of one host.
type hostSeries struct{ copies, waits []series }

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (m *Meter) Snapshot(yield func(snapshot.Section) error) error {
	hosts, of := map[snapshot.HostID]bool{}, map[snapshot.HostID]hostSeries{}
	m.processes.Hosts(hosts)
	for k := range m.series {
		h := of[k.HostID]
		h.copies = append(h.copies, k)
		hosts[k.HostID], of[k.HostID] = true, h
	}
	for k := range m.waits {
		h := of[k.HostID]
		h.waits = append(h.waits, k)
		hosts[k.HostID], of[k.HostID] = true, h
	}
	return form.Save(&m.out, hosts, snapshot.Parts[*snapshot.Writer]{
		Lock:  &m.mu,
		Shard: m.saveShard,
		Host: func(w *snapshot.Writer, id snapshot.HostID) {
			m.saveHost(w, of[id])
			m.processes.SaveHost(w, id, func(e *process.Entry[state]) { e.State.save(w) })
		},
	}, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (m *Meter) Restore(section snapshot.Section) error {
	return form.Restore(section, snapshot.Parts[*snapshot.Reader]{
		Lock:  &m.mu,
		Shard: m.restoreShard,
		Host: func(r *snapshot.Reader, id snapshot.HostID) {
			m.restoreHost(r, id)
			m.processes.RestoreHost(r, id, func(e *process.Entry[state]) { e.State.restore(r) })
		},
	})
}

func (m *Meter) saveShard(w *snapshot.Writer) {
	m.processes.SaveShard(w)
	others := slices.SortedFunc(maps.Keys(m.others), labels.compare)
	w.Uint(uint64(len(others)))
	for _, l := range others {
		saveRow(w, l.row)
		w.Bool(l.async)
		m.others[l].save(w)
	}
	w.Bool(m.otherWaits != nil)
	if m.otherWaits != nil {
		m.otherWaits.save(w)
	}
}

func (m *Meter) restoreShard(r *snapshot.Reader) {
	m.processes.RestoreShard(r)
	for range r.Each(5) {
		row, async := restoreRow(r), r.Bool()
		m.other(row, async).restore(r)
	}
	if r.Bool() {
		m.otherWaits = &Waits{}
		m.otherWaits.restore(r)
	}
}

func (m *Meter) saveHost(w *snapshot.Writer, h hostSeries) {
	slices.SortFunc(h.copies, func(a, b series) int { return a.compare(b.labels) })
	w.Uint(uint64(len(h.copies)))
	for _, k := range h.copies {
		k.save(w)
		saveRow(w, k.row)
		w.Bool(k.async)
		m.series[k].save(w)
	}
	slices.SortFunc(h.waits, func(a, b series) int { return a.compare(b.labels) })
	w.Uint(uint64(len(h.waits)))
	for _, k := range h.waits {
		k.save(w)
		m.waits[k].save(w)
	}
}

func (m *Meter) restoreHost(r *snapshot.Reader, id snapshot.HostID) {
	for range r.Each(9) {
		k := restoreSeries(r, id)
		k.row, k.async = restoreRow(r), r.Bool()
		if m.series[k] != nil {
			r.Fail("a series appears twice")
			return
		}
		var s sum
		s.restore(r)
		m.at(k).add(s)
	}
	for range r.Each(6) {
		k := restoreSeries(r, id)
		if m.waits[k] != nil {
			r.Fail("a series appears twice")
			return
		}
		var waits Waits
		waits.restore(r)
		m.waitsOf(k).add(waits)
	}
}

func (l labels) compare(to labels) int {
	async := func(l labels) int {
		if l.async {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(l.gpu, to.gpu), cmp.Compare(l.uuid, to.uuid), cmp.Compare(l.container, to.container),
		cmp.Compare(l.comm, to.comm), cmp.Compare(l.row, to.row), cmp.Compare(async(l), async(to)))
}

// save writes the labels that identify a series within its host, without row and mode.
func (l *labels) save(w *snapshot.Writer) {
	for _, label := range []string{l.gpu, l.uuid, l.container, l.comm} {
		w.String(label)
	}
}

func restoreSeries(r *snapshot.Reader, id snapshot.HostID) series {
	return series{id, labels{
		hostname: process.Label(id.Host), gpu: process.RestoreLabel(r), uuid: process.RestoreLabel(r),
		container: process.RestoreLabel(r), comm: process.RestoreLabel(r),
	}}
}

// setWord is the saved word of the row of sets. The other rows are saved as the words of their directions.
const setWord = "set"

func saveRow(w *snapshot.Writer, row schema.Direction) {
	if row == rowSet {
		w.String(setWord)
		return
	}
	w.String(row.String())
}

func restoreRow(r *snapshot.Reader) schema.Direction {
	word := r.String()
	if word == setWord {
		return rowSet
	}
	return process.Direction(word)
}

func (s *sum) save(w *snapshot.Writer) {
	for _, n := range []uint64{s.calls, s.bytes, s.busy} {
		w.Uint(n)
	}
}

func (s *sum) restore(r *snapshot.Reader) { *s = sum{calls: r.Uint(), bytes: r.Uint(), busy: r.Uint()} }

func (w *Waits) save(to *snapshot.Writer) {
	to.Uint(w.Calls)
	to.Uint(w.NS)
}

func (w *Waits) restore(r *snapshot.Reader) { *w = Waits{Calls: r.Uint(), NS: r.Uint()} }

// save writes the rows in use.
func (s *state) save(w *snapshot.Writer) {
	s.waits.save(w)
	w.Uint(s.recorded)
	used := 0
	for row := range numRows {
		if s.sync[row] != (sum{}) || s.async[row] != (sum{}) {
			used++
		}
	}
	w.Uint(uint64(used))
	for row := range numRows {
		if s.sync[row] != (sum{}) || s.async[row] != (sum{}) {
			saveRow(w, row)
			s.sync[row].save(w)
			s.async[row].save(w)
		}
	}
}

func (s *state) restore(r *snapshot.Reader) {
	s.waits.restore(r)
	s.recorded = r.Uint()
	for range r.Each(7) {
		row := restoreRow(r)
		s.sync[row].restore(r)
		s.async[row].restore(r)
	}
}

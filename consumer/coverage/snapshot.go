package coverage

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

var form = snapshot.Form{Fold: "coverage", Version: 1}

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (f *Fold) Snapshot(yield func(snapshot.Section) error) error {
	hosts := map[snapshot.HostID]bool{}
	for id := range f.hosts {
		hosts[id] = true
	}
	return form.Save(&f.out, hosts, snapshot.Parts[*snapshot.Writer]{
		Lock:  &f.mu,
		Shard: func(*snapshot.Writer) {},
		Host:  func(w *snapshot.Writer, id snapshot.HostID) { f.hosts[id].save(w) },
	}, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (f *Fold) Restore(section snapshot.Section) error {
	return form.Restore(section, snapshot.Parts[*snapshot.Reader]{
		Lock:  &f.mu,
		Shard: func(*snapshot.Reader) {},
		Host: func(r *snapshot.Reader, id snapshot.HostID) {
			if f.hosts[id] != nil {
				r.Fail("the host has been restored already")
				return
			}
			h := &Host{Cluster: id.Cluster, Host: id.Host}
			h.restore(r)
			f.hosts[id] = h
		},
	})
}

func (h *Host) save(w *snapshot.Writer) {
	w.String(h.boot)
	w.Int(h.booted)
	w.Uint(h.run)
	w.Uint(h.seq)
	w.String(h.Linux)
	w.String(h.Producer)
	w.Uint(uint64(len(h.Libraries)))
	for i := range h.Libraries {
		l := &h.Libraries[i]
		w.String(l.Path)
		w.Uint(l.Inode)
		w.Uint(uint64(l.Attached))
		w.Uint(uint64(l.Stepped))
		saveStrings(w, l.Absent)
		saveStrings(w, l.Failed)
	}
	w.Uint(uint64(len(h.GPUs)))
	for i := range h.GPUs {
		g := &h.GPUs[i]
		w.String(g.UUID)
		w.Uint(uint64(g.Ordinal))
		w.Bool(g.Inferred)
		w.String(g.Name)
		w.String(g.Bus)
	}
	w.Uint(uint64(len(h.Processes)))
	for i := range h.Processes {
		p := &h.Processes[i]
		p.Save(w)
		w.Uint(uint64(p.Asked))
		w.Uint(uint64(p.ExportTables))
		saveStrings(w, p.Outside)
	}
}

func (h *Host) restore(r *snapshot.Reader) {
	h.boot, h.booted, h.run, h.seq = r.String(), r.Int(), r.Uint(), r.Uint()
	h.Linux, h.Producer = r.String(), r.String()
	for range r.Each(6) {
		h.Libraries = append(h.Libraries, schema.Library{
			Path: r.String(), Inode: r.Uint(), Attached: r.Uint32(), Stepped: r.Uint32(), Absent: restoreStrings(r),
			Failed: restoreStrings(r),
		})
	}
	for range r.Each(5) {
		h.GPUs = append(h.GPUs, schema.GPU{UUID: r.String(), Ordinal: r.Uint32(), Inferred: r.Bool(),
			Name: r.String(), Bus: r.String()})
	}
	for range r.Each(17) {
		h.Processes = append(h.Processes, Process{
			Info: process.RestoreInfo(r, h.id()), Asked: r.Uint32(), ExportTables: r.Uint32(),
			Outside: restoreStrings(r),
		})
	}
}

func saveStrings(w *snapshot.Writer, all []string) {
	w.Uint(uint64(len(all)))
	for _, s := range all {
		w.String(s)
	}
}

func restoreStrings(r *snapshot.Reader) (all []string) {
	for range r.Each(1) {
		all = append(all, r.String())
	}
	return all
}

package rank

import (
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Tick closes the windows of a host whose next window ends at through or before, and publishes their summaries.
func (f *Fold) Tick(header *schema.Header, through schema.KTime) {
	f.mu.Lock()
	list := f.close(header, through)
	f.mu.Unlock()
	for _, s := range list {
		if f.publish != nil {
			f.publish(s)
		}
	}
}

func (f *Fold) close(header *schema.Header, through schema.KTime) (list []Summary) {
	h := f.hosts[snapshot.HostID{Cluster: header.Cluster, Host: header.Host}]
	if h == nil || h.boot != header.BootID {
		return nil
	}
	end := h.windowOf(through)
	if end <= h.next+1 {
		return nil
	}
	end--
	if end > h.next+maxCatchUp {
		for _, p := range h.procs {
			f.counters.incomplete++
			f.release(p)
			p.class, p.from = schema.NoActivity, max(p.from, end+1)
		}
		h.goTo(end)
		return nil
	}
	all := h.sorted()
	for len(all) > 0 {
		job := all[0].row.Job
		n := slices.IndexFunc(all, func(p *proc) bool { return p.row.Job != job })
		if n < 0 {
			n = len(all)
		}
		if s, ok := f.summarize(h, header, all[:n], end); ok {
			list = append(list, s)
		}
		all = all[n:]
	}
	h.goTo(end)
	f.sweep(h)
	return list
}

// sweep removes the processes that have ended, and what is closed.
func (f *Fold) sweep(h *host) {
	running := map[string]*numbering{}
	for _, p := range h.procs {
		if p.gone() {
			f.remove(p)
			continue
		}
		f.releaseBefore(p, h.done/pageBins)
		if n := h.jobs[p.row.Job]; n != nil {
			running[p.row.Job] = n
		}
	}
	h.jobs = running
}

// summarize closes the windows before end of the ranks of one job.
func (f *Fold) summarize(h *host, header *schema.Header, ranks []*proc, end window) (Summary, bool) {
	b := f.builder
	b.Reset()
	b.Origin = header.Host
	for _, p := range ranks {
		thread := b.Thread(schema.Thread{Process: b.Process(p.row), TID: p.row.PID, Comm: p.row.Comm})
		for w := h.next; w < end; w++ {
			calls, idle := p.close(w)
			switch {
			case w < p.from:
			case h.frozen > 0 && h.start(w) <= h.frozen:
				f.counters.incomplete++
			default:
				f.counters.summarized++
				addRows(b, schema.Rank{Time: h.start(w), Thread: thread}, &calls, &idle)
			}
		}
		if p.gone() {
			b.AddRank(&schema.Rank{Time: h.start(end), Thread: thread})
		}
	}
	if b.Events() == 0 {
		return Summary{}, false
	}
	job := ranks[0].row.Job
	n := h.jobs[job]
	if n == nil {
		n = &numbering{run: b.First()}
		h.jobs[job] = n
	}
	n.seq++
	message := b.Encode(&schema.Header{Cluster: header.Cluster, Host: job, BootID: h.boot, Run: uint64(n.run),
		Seq: n.seq, ClockOffset: h.offset})
	return Summary{Cluster: header.Cluster, Job: job, Message: slices.Clone(message)}, true
}

// addRows adds the rows of one process and window. There is always one for launches.
func addRows(b *schema.Builder, row schema.Rank, calls *sums, idle *pauses) {
	for class := schema.Launching; class < schema.NumActivities; class++ {
		of := &calls[class]
		row.To, row.Count, row.Bytes, row.Duration = class, of.count, of.bytes, uint64(of.took)
		if of.count > 0 || of.took > 0 || class == schema.Launching {
			b.AddRank(&row)
		}
	}
	row.Bytes = 0
	for from := schema.Launching; from < schema.NumActivities; from++ {
		for to := range schema.NumActivities {
			if of := &idle[from][to]; of.count > 0 {
				row.From, row.To, row.Count, row.Duration = from, to, of.count, of.units*unit
				b.AddRank(&row)
			}
		}
	}
}

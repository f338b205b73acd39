package tensor

import (
	"fmt"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// Verdict says whether the set of tensors of a process on one GPU grows without end, and whether the cache does.
type Verdict struct {
	State        trend.State // of the tensors
	Cache        trend.State
	At           time.Time // end of the last window that was judged; zero: none
	Since        time.Time // tensors grow: when growth began
	PerHour      uint64    // bytes by which the tensors grow: Theil–Sen slope of the minima
	CachePerHour uint64
	GrowthBytes  uint64 // tensors grow: since Since
	// tensors are suspect: those that were allocated since Since, are still live and no longer young
	SuspectBytes uint64
	Why          string // one sentence, without a full stop
	Evidence     alert.Evidence
	Groups       []Group // tensors grow: the largest 10 that grow steadily
}

const (
	minSuspect = 256 << 20 // growth that makes tensors suspect, in bytes
	gpuPart    = 200       // and as a part of the GPU
)

// judge judges the running processes of a boot at the end of a window.
func (f *Fold) judge(id snapshot.HostID, bootID string, b *boot) {
	w := &b.windows
	for _, p := range f.processes.Of(id) {
		if p.Ended || p.ID.BootID != bootID {
			continue
		}
		for _, d := range p.State.devices {
			if d.series == nil {
				continue
			}
			limit := max(minSuspect, d.total/gpuPart)
			d.verdict = d.series.Judge(d.verdict, w.Open, &w.Gaps, trend.Criteria{
				Suspect: limit, Residue: true, Doubt: f.doubtful(d, w.Open),
			})
			d.cached = d.cache.Judge(d.cached, w.Open, &w.Gaps, trend.Criteria{Suspect: limit, Level: true})
			d.judged = schema.KTime(w.Open) * schema.KTime(f.window)
			switch {
			case d.verdict.Fading: // its evidence is that of the window before
			case d.verdict.State.Grows():
				d.suspected = min(p.State.group(d, schema.KTime(f.window)), d.verdict.Growth)
			default:
				d.suspected, d.groups = 0, nil
			}
		}
	}
}

// doubtful reports that blocks which were handed out before gputap attached were taken back in the windows that are
// judged. Tensors that seem to grow may replace them.
func (f *Fold) doubtful(d *device, open uint64) bool {
	return d.early > 0 && d.oddFree > 0 && uint64(d.oddFree/schema.KTime(f.window))+trend.Kept >= open
}

// Verdict returns the verdict about the tensors of a process on the GPU of an ordinal, and the bytes in the cache.
func (f *Fold) Verdict(of schema.ProcessID, ordinal int32) (v Verdict, cached uint64, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.processes.Find(of)
	if p == nil {
		return v, 0, false
	}
	for _, d := range p.State.devices {
		if d.ordinal == ordinal && d.last != 0 {
			return f.verdict(p, d), d.cachedBytes(), true
		}
	}
	return v, 0, false
}

func (f *Fold) verdict(p *process.Entry[state], d *device) Verdict {
	v := &d.verdict
	out := Verdict{
		State: v.State, Cache: d.cached.State, At: wall(p, d.judged), PerHour: v.PerHour,
		CachePerHour: d.cached.PerHour, Why: f.why(d),
	}
	if !v.State.Grows() {
		return out
	}
	out.Since, out.GrowthBytes = wall(p, schema.KTime(v.Onset)*schema.KTime(f.window)), v.Growth
	if v.State == trend.Suspect {
		out.SuspectBytes = d.suspected
	}
	for i := range d.groups {
		out.Groups = append(out.Groups,
			reportGroup(&d.groups[i], func(at schema.KTime) time.Time { return wall(p, at) }))
	}
	if b := f.hosts[hostID(p)][p.ID.BootID]; b != nil {
		out.Evidence = alert.Evidence{Host: p.ID.Host, Boot: p.ID.BootID, Run: b.run, Kind: schema.KindTensor.String(),
			Seq: b.windows.Seq, SeqFrom: b.windows.From(v.Onset), SeqTo: b.windows.Seq}
	}
	return out
}

func hostID(p *process.Entry[state]) snapshot.HostID {
	return snapshot.HostID{Cluster: p.ID.Cluster, Host: p.ID.Host}
}

// why explains a verdict with its numbers.
func (f *Fold) why(d *device) string {
	v, c := &d.verdict, &d.cached
	switch {
	case v.Hidden:
		return fmt.Sprintf("each window of %s leaves tensors of PyTorch behind (%s per hour), while the bytes in use "+
			"fluctuate by more", f.window, iec(v.PerHour))
	case v.State.Grows():
		text := fmt.Sprintf("PyTorch's tensors have grown by %s in %s and do not come down (now %s per hour, by the "+
			"median of the last windows); %s of it is "+
			"older than %s and still live", iec(v.Growth), time.Duration(v.Newest+1-v.Onset)*f.window, iec(v.PerHour),
			iec(d.suspected), time.Duration(v.Newest-v.OldUntil)*f.window)
		if f.doubtful(d, v.Newest+1) {
			text += "; at most growing, because the process frees tensors from before gputap started"
		}
		return text
	case v.State == trend.Warming:
		return fmt.Sprintf("%d of the first %d windows of %s of PyTorch's tensors have ended", v.Windows, trend.Fewest,
			f.window)
	case v.State == trend.Unknown:
		return fmt.Sprintf("%d of %d windows of PyTorch's tensors have lost events", v.Excluded, v.Windows+v.Excluded)
	case c.State.Grows():
		return fmt.Sprintf("PyTorch's cache grows, its tensors do not: %s per hour stay reserved for no tensor. Freed "+
			"blocks do not fit new tensors (try expandable_segments:True in PYTORCH_ALLOC_CONF), or new CUDA streams "+
			"cannot use the blocks of old ones", iec(c.PerHour))
	}
	return fmt.Sprintf("no lasting growth of PyTorch's tensors in %d windows of %s", v.Windows, f.window)
}

// iec formats bytes with binary units.
func iec(bytes uint64) string {
	amount := float64(bytes)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if amount < 1024 {
			return fmt.Sprintf("%.4g %s", amount, unit)
		}
		amount /= 1024
	}
	return fmt.Sprintf("%.4g TiB", amount)
}

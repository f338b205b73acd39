package leak

import (
	"fmt"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// device is one GPU as one process sees it, with the trend of the process's memory there.
type device struct {
	gpu     int32         // ordinal in the process's numbering; noGPU: unknown
	series  *trend.Series // nil until the image allocates, and after its end
	peak    uint64        // the most bytes that were live at once
	peakAt  schema.KTime
	verdict trend.Verdict
	judged  schema.KTime  // end of the last window of verdict
	groups  []trend.Group // of verdict, while memory grows
	found   uint64        // bytes of all groups, also those that are not kept
	shown   trend.State   // of verdict or of the tensors

	alarm    alarm
	alarmGPU string // UUID in the key of the alert
}

const (
	noDevice   = 255
	maxDevices = 64 // per process; more GPUs have no verdict

	minSuspect = 256 << 20 // growth that makes memory suspect, in bytes
	gpuPart    = 200       // and as a part of the GPU
)

// device returns the index of the device of a new row, adding it if needed.
func (s *state) device(gpu int32, class schema.MemClass) uint8 {
	if !class.OnGPU() {
		return noDevice
	}
	for i := range s.devices {
		if s.devices[i].gpu == gpu {
			return uint8(i)
		}
	}
	if len(s.devices) == maxDevices {
		return noDevice
	}
	s.devices = append(s.devices, device{gpu: gpu})
	return uint8(len(s.devices) - 1)
}

// seriesOf returns the device and the series that an allocation counts in; nil: none.
func (s *state) seriesOf(a *allocation) (*device, *trend.Series) {
	if i := s.rows[a.row].device; i != noDevice {
		return &s.devices[i], s.devices[i].series
	}
	return nil, nil
}

// grow adds a new allocation to its series.
func (s *state) grow(a *allocation, window time.Duration) {
	d, series := s.seriesOf(a)
	if d == nil {
		return
	}
	if series == nil {
		series = trend.NewSeries(window, a.since)
		d.series = series
	}
	if live := series.Add(a.since, a.bytes); live > d.peak {
		d.peak, d.peakAt = live, a.since
	}
}

// shrink removes an allocation that ends at a time.
func (s *state) shrink(a *allocation, at schema.KTime) {
	if _, series := s.seriesOf(a); series != nil {
		series.Remove(at, a.since, a.bytes)
	}
}

// move changes the time of an entry.
func (s *state) move(a *allocation, to schema.KTime) {
	if _, series := s.seriesOf(a); series != nil && a.kind == memory {
		series.Move(a.since, to, a.bytes)
	}
	a.since = to
}

// Tick closes the windows that end before a time on a host and judges the memory of its processes. The goroutine that
// calls Apply calls Tick when every event up to that time was applied.
func (t *Tracker) Tick(h *schema.Header, through schema.KTime) {
	t.mu.Lock()
	defer t.unlock()
	if m := t.hosts[snapshot.HostID{Cluster: h.Cluster, Host: h.Host}]; m != nil && m.boots[h.BootID] != nil {
		b := m.boots[h.BootID]
		t.endWindows(b, through)
		t.advance(m.id, b.wall(through))
	}
}

func (t *Tracker) endWindows(h *boot, through schema.KTime) {
	if !h.windows.Close(schema.KTime(t.cfg.Window), through) {
		return
	}
	for _, p := range t.table.Of(h.id) {
		if p.State.boot != h || p.Ended {
			continue
		}
		for i := range p.State.devices {
			t.judge(p, uint8(i))
		}
	}
}

// judge judges one GPU of a process at the end of a window.
func (t *Tracker) judge(p *proc, i uint8) {
	s := &p.State
	d, w, width := &s.devices[i], &s.boot.windows, schema.KTime(t.cfg.Window)
	if d.series == nil {
		return
	}
	total, _ := s.capacity(d.gpu)
	d.verdict = d.series.Judge(d.verdict, w.Open, &w.Gaps, trend.Criteria{
		Suspect: limit(total), Doubt: doubtful(p, w.Open, width),
	})
	d.judged = schema.KTime(w.Open) * width
	if !d.verdict.Fading { // else its evidence is that of the window before
		d.groups, d.found = nil, 0
		if d.verdict.State.Grows() {
			t.group(p, i)
		}
	}
	if now := t.stateOf(p, d); now != d.shown {
		before := d.shown
		d.shown = now
		t.change(p, d, before, false)
	}
	t.alarm(p, d)
}

// doubtful reports that a process ran before gputap and, in the windows that are judged, freed memory from that time.
// Memory that seems to grow may replace it.
func doubtful(p *proc, open uint64, width schema.KTime) bool {
	at := p.State.unmatched
	return p.Late && at > 0 && uint64(at/width)+trend.Kept >= open
}

// endVerdicts keeps the last verdicts of an image that ends, and clears its alerts.
func (t *Tracker) endVerdicts(p *proc) {
	for i := range p.State.devices {
		d := &p.State.devices[i]
		if d.series != nil && d.shown.Grows() {
			t.change(p, d, d.shown, true)
		}
		if d.alarm != quiet {
			t.book.Clear(keyOfGrowth(p, d.alarmGPU, d.alarm), p.State.boot.wall(p.State.boot.last), "the process ended")
		}
		d.series, d.alarm = nil, quiet
	}
}

// capacity returns the total and the used bytes of a GPU. A total of 0 is unknown.
func (s *state) capacity(gpu int32) (total, used uint64) {
	for i := range s.rows {
		r := &s.rows[i]
		if c := r.card; c != nil && r.gpu == gpu {
			if c.last.at == 0 {
				return c.bytes, c.live
			}
			return max(c.bytes, c.last.total), later(c.last.used, c.last.all, c.live)
		}
	}
	for i := range s.samples {
		if q := &s.samples[i]; q.gpu == gpu {
			own := uint64(0)
			for k := range s.devices {
				if d := &s.devices[k]; d.gpu == gpu && d.series != nil {
					own = d.series.Live()
				}
			}
			return q.total, later(q.used, q.own, own)
		}
	}
	return 0, 0
}

// later returns how many bytes are used after live memory has changed from one amount to another.
func later(used, from, to uint64) uint64 {
	return used + max(to, from) - from - min(used, from-min(from, to))
}

// Change is a change of a verdict.
type Change struct {
	process.Info
	From     trend.State // the state before
	Verdict  Verdict
	Ended    bool   // the process or its image ended while its memory grew; Verdict is its last
	Run, Seq uint64 // producer run and seq of the host's last memory batch before the change
}

func (t *Tracker) change(p *proc, d *device, from trend.State, ended bool) {
	if t.cfg.OnVerdict != nil {
		h := p.State.boot
		t.changes = append(t.changes, Change{p.Info, from, t.verdict(p, d), ended, h.run, h.windows.Seq})
	}
}

// unlock releases the lock, and reports what changed while it was held.
func (t *Tracker) unlock() {
	alerts := t.book.Changes()
	t.mu.Unlock()
	for i := range t.changes {
		t.cfg.OnVerdict(t.changes[i])
	}
	t.changes = t.changes[:0]
	if t.cfg.OnAlert == nil {
		return
	}
	for i := range alerts {
		t.cfg.OnAlert(alerts[i])
	}
}

// Verdict says whether the memory of a process on one GPU grows without end, or the tensors in it.
type Verdict struct {
	GPU      string // UUID; "": unknown
	Ordinal  int    // in the process's numbering; -1: unknown
	Inferred bool   // the producer inferred the GPU

	State             trend.State
	At                time.Time     // end of the last window that was judged; zero: none
	SuspectBytes      uint64        // in state suspect: live, allocated since Since, and no longer young
	SlopeBytesPerHour uint64        // Theil–Sen slope of the minima
	GrowthBytes       uint64        // growing and suspect: growth since Since
	Since             time.Time     // growing and suspect: when growth began
	FullIn            time.Duration // growing and suspect: time until the GPU is full; 0: unknown, or it has ended
	Full              bool          // growing and suspect: it is full, and the process has not ended
	Evidence          alert.Evidence
	Why               string  // one sentence
	Groups            []Group // growing and suspect: the largest 10 that grow steadily
}

// suspected returns the bytes that the verdict suspects. Those of a model that was loaded meanwhile are not growth.
func (d *device) suspected() uint64 {
	if d.verdict.State != trend.Suspect {
		return 0
	}
	return min(d.found, d.verdict.Growth)
}

func (t *Tracker) verdict(p *proc, d *device) Verdict {
	s, v, width := &p.State, &d.verdict, schema.KTime(t.cfg.Window)
	of := s.gpuUse(d.gpu)
	out := Verdict{
		GPU: of.UUID, Ordinal: of.Ordinal, Inferred: of.Inferred, State: v.State, At: s.boot.wall(d.judged),
		SuspectBytes: d.suspected(), SlopeBytesPerHour: v.PerHour, GrowthBytes: v.Growth, Why: t.why(p, d),
	}
	if v.State.Grows() {
		out.Since, out.Evidence = s.boot.wall(schema.KTime(v.Onset)*width), t.growthEvidence(p, v)
		for i := range d.groups {
			out.Groups = append(out.Groups, reportGroup(&d.groups[i], s.boot))
		}
	}
	tensors, known := t.tensors(p, d)
	if known {
		out.join(&tensors)
	}
	if out.State.Grows() && d.series != nil { // an image that has ended fills nothing
		spare := uint64(0)
		if !v.State.Grows() {
			spare = tensors.Cached
		}
		out.FullIn, out.Full = s.fullIn(d.gpu, spare, out.SlopeBytesPerHour)
	}
	return out
}

// fullIn returns the time until a GPU is full, and whether it is full. spare is free memory that counts as used.
func (s *state) fullIn(gpu int32, spare, perHour uint64) (in time.Duration, full bool) {
	total, used := s.capacity(gpu)
	used -= min(used, spare)
	if total <= used || perHour == 0 {
		return 0, total > 0 && total <= used
	}
	hours := float64(total-used) / float64(perHour)
	return time.Duration(min(hours*float64(time.Hour), 1<<62)).Round(time.Second), false
}

// why explains a verdict with its numbers.
func (t *Tracker) why(p *proc, d *device) string {
	v, window := &d.verdict, t.cfg.Window
	switch v.State {
	case trend.Warming:
		return fmt.Sprintf("%d of the first %d windows of %s have ended", v.Windows, trend.Fewest, window)
	case trend.Unknown:
		return fmt.Sprintf("%d of %d windows have lost events", v.Excluded, v.Windows+v.Excluded)
	case trend.Steady:
		return fmt.Sprintf("no lasting growth in %d windows of %s", v.Windows, window)
	}
	text := fmt.Sprintf("live memory has grown by %s in %s and does not come down (now %s per hour, by "+
		"the median of the last windows); %s of it is older than %s and still live", iec(v.Growth),
		time.Duration(v.Newest+1-v.Onset)*window, iec(v.PerHour),
		iec(min(d.found, v.Growth)), time.Duration(v.Newest-v.OldUntil)*window)
	if doubtful(p, p.State.boot.windows.Open, schema.KTime(window)) {
		text += "; at most growing, because the process frees memory from before gputap started"
	}
	return text
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

// device passes over a device. Its live memory follows later.
func (c *coder) device(s *state, d *device) {
	snapshot.Int(c.Codec, &d.gpu)
	snapshot.Uint(c.Codec, &d.peak)
	snapshot.Uint(c.Codec, &d.peakAt, &d.judged)
	d.verdict.Code(c.Codec)
	snapshot.Uint(c.Codec, &d.found)
	trend.CodeState(c.Codec, &d.shown)
	level := int(d.alarm)
	c.Below(&level, int(numAlarms))
	d.alarm = alarm(level)
	c.String(&d.alarmGPU)
	snapshot.List(c.Codec, &d.groups, 8, c.group)
	begun := d.series != nil
	if c.Bool(&begun); !begun {
		return
	}
	if c.Reading() {
		d.series = trend.NewSeries(time.Duration(c.width), 0)
	}
	d.series.Code(c.Codec, s.boot.windows.Open)
	if c.width != schema.KTime(c.cfg.Window) {
		*d = device{gpu: d.gpu, peak: d.peak, peakAt: d.peakAt, alarm: d.alarm, alarmGPU: d.alarmGPU,
			series: trend.NewSeries(c.cfg.Window, s.boot.windows.Known())}
	}
}

// restoreTrend adds a restored allocation to its series.
func (c *coder) restoreTrend(s *state, a *allocation) {
	d, series := s.seriesOf(a)
	switch {
	case a.kind != memory || d == nil:
	case series == nil:
		c.Fail("an image that has ended has live memory")
	default:
		series.Restore(a.since, a.bytes)
	}
}

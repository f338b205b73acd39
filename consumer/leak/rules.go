package leak

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// Rules configures the rules that raise alerts. The zero Rules is usable.
type Rules struct {
	Mode     alert.Mode    // of both rules; "": each has its own
	Cooldown time.Duration // after an alert cleared, how long an equal finding raises none; 0: 15 minutes
	Exclude  alert.Exclude

	Growth     alert.Mode // of leak_growth; "": alert
	Unfreed    alert.Mode // of unfreed_at_exit; "": observe
	MinUnfreed uint64     // bytes that unfreed_at_exit judges; 0: 256 MiB
}

const (
	ruleGrowth  = "leak_growth"
	ruleUnfreed = "unfreed_at_exit"

	fullSoon     = time.Hour        // leak_growth is critical if the GPU is full before
	unfreedShown = 10 * time.Minute // how long unfreed_at_exit fires: its process has ended
)

func (r Rules) withDefaults() Rules {
	r.Cooldown = cmp.Or(r.Cooldown, 15*time.Minute)
	r.Growth, r.Unfreed = cmp.Or(r.Mode, r.Growth, alert.ModeAlert), cmp.Or(r.Mode, r.Unfreed, alert.ModeObserve)
	r.MinUnfreed = cmp.Or(r.MinUnfreed, minSuspect)
	return r
}

// alarm is the alert of leak_growth that fires about a device.
type alarm uint8

const (
	quiet   alarm = iota
	warned        // warning
	alarmed       // critical; it stays so while the memory is suspect
	numAlarms
)

func keyOfGrowth(p *proc, uuid string, a alarm) alert.Key {
	k := alert.Key{Rule: ruleGrowth, Process: p.ID, GPU: uuid}
	if a == alarmed {
		k.Detail = alert.Critical
	}
	return k
}

// alarm raises, escalates or clears leak_growth after a window.
func (t *Tracker) alarm(p *proc, d *device) {
	off := t.rules.Growth == alert.ModeOff
	suspect := !off && t.stateOf(p, d) == trend.Suspect
	if !suspect && d.alarm == quiet {
		return
	}
	excluded := t.rules.Exclude.Excludes(ruleGrowth, &p.Info)
	if excluded && d.alarm == quiet {
		t.book.Suppress(ruleGrowth, "excluded")
		return
	}
	now, why := p.State.boot.wall(d.judged), ""
	switch {
	case off: // it fired before the program started again
		why = "the rule is off"
	case excluded: // it fired before, too
		why = "the process is excluded"
	case !suspect:
		why = "the memory no longer grows"
	}
	if why != "" {
		t.book.Clear(keyOfGrowth(p, d.alarmGPU, d.alarm), now, why)
		d.alarm = quiet
		return
	}
	v := t.verdict(p, d)
	want := warned
	if d.alarm == alarmed || v.Full || v.FullIn > 0 && v.FullIn < fullSoon {
		want = alarmed
	}
	if want == d.alarm {
		return
	}
	if d.alarm != quiet {
		t.book.Clear(keyOfGrowth(p, d.alarmGPU, d.alarm), now, "the GPU is full soon, which is critical")
		d.alarm = quiet
	}
	a := t.describeGrowth(p, &v, want)
	if t.book.Fire(keyOfGrowth(p, v.GPU, want), now, a.Evidence.Seq, func() alert.Alert { return a }) {
		d.alarm, d.alarmGPU = want, v.GPU
	}
}

// describeGrowth returns the alert about a suspect verdict.
func (t *Tracker) describeGrowth(p *proc, v *Verdict, level alarm) alert.Alert {
	a := alert.About(&p.Info)
	a.Severity = alert.Warning
	if level == alarmed {
		a.Severity = alert.Critical
	}
	if t.rules.Growth == alert.ModeObserve {
		a.Severity = alert.Info
	}
	total, _ := p.State.capacity(int32(v.Ordinal))
	a.Since, a.GPU, a.Bytes, a.Evidence = v.Since, v.GPU, v.SuspectBytes, v.Evidence
	a.Value, a.Baseline = float64(v.GrowthBytes), float64(limit(total))
	a.Score = ratio(v.GrowthBytes, limit(total))
	full, group, before := "", "", " before the GPU is full"
	switch {
	case v.Full:
		full, before = " The GPU is full.", ""
	case v.FullIn > 0:
		full = fmt.Sprintf(" At this rate the GPU is full in %s.",
			strings.TrimSuffix(max(time.Minute, v.FullIn.Round(time.Minute)).String(), "0s"))
	}
	if len(v.Groups) > 0 {
		g := &v.Groups[0]
		a.TID, a.ThreadComm = g.TID, g.Thread
		group = " The largest group: " + g.String() + "."
	}
	a.Message = fmt.Sprintf("%s (pid %d) on %s leaks memory of %s: %s.%s%s Restart the process%s, and find out "+
		"what keeps that memory.", a.Comm, a.PID, a.Host, cmp.Or(v.GPU, "a GPU"), v.Why, full, group, before)
	return a
}

// growthEvidence names the memory batches since growth began.
func (t *Tracker) growthEvidence(p *proc, v *trend.Verdict) alert.Evidence {
	h := p.State.boot
	return alert.Evidence{Host: h.id.Host, Boot: h.bootID, Run: h.run, Kind: schema.KindMemory.String(),
		Seq: h.windows.Seq, SeqFrom: h.windows.From(v.Onset), SeqTo: h.windows.Seq}
}

// limit is the growth that makes memory suspect, on a GPU with so many bytes; 0: unknown.
func limit(total uint64) uint64 { return max(minSuspect, total/gpuPart) }

// teardown is GPU memory that a program frees when it ends in order. It counts the bytes that were freed since the
// latest allocation and had lived for at least half of the time since the first. So memory that a program allocates and
// frees all the time is no part of it.
type teardown struct {
	began schema.KTime // first allocation of the image; 0: none
	freed amount
}

func (d *teardown) allocated(at schema.KTime) {
	d.began, d.freed = cmp.Or(d.began, at), amount{}
}

func (d *teardown) free(a *allocation, at schema.KTime) {
	if at > a.since && at-a.since >= (at-min(at, d.began))/2 {
		d.freed.add(a.bytes)
	}
}

// judgeExit raises unfreed_at_exit about a process that ends now. A process that frees nothing when it ends leaves that
// to the driver, as most programs do, and one that was killed could not. So the finding is a process that freed most of
// its memory before it ended, and not the rest.
func (t *Tracker) judgeExit(p *proc, m *schema.Memory) {
	s := &p.State
	left, freed := s.live, s.teardown.freed
	least, uuid, most := t.rules.MinUnfreed, "", uint64(0)
	for i := range s.devices {
		total, _ := s.capacity(s.devices[i].gpu)
		least = max(least, total/gpuPart)
		if of := s.gpuUse(s.devices[i].gpu); of.LiveBytes > most {
			uuid, most = of.UUID, of.LiveBytes
		}
	}
	switch {
	case t.rules.Unfreed == alert.ModeOff || p.Ended || left.bytes < least || freed.bytes < left.bytes:
		return
	case t.rules.Exclude.Excludes(ruleUnfreed, &p.Info):
		t.book.Suppress(ruleUnfreed, "excluded")
		return
	case evidence(p) != complete:
		t.book.Suppress(ruleUnfreed, "incomplete") // frees may have been lost
		return
	}
	k := alert.Key{Rule: ruleUnfreed, Detail: p.Comm} // one alert for many runs of a command
	k.Process.Cluster, k.Process.Host = p.ID.Cluster, p.ID.Host
	t.book.Fire(k, t.in.Wall(m.Time), t.in.Seq, func() alert.Alert {
		a := alert.About(&p.Info)
		a.Severity, a.GPU, a.Bytes, a.Value, a.Baseline = alert.Warning, uuid, left.bytes, float64(left.bytes),
			float64(freed.bytes)
		if t.rules.Unfreed == alert.ModeObserve {
			a.Severity = alert.Info
		}
		a.Score = ratio(left.bytes, freed.bytes)
		a.Evidence = alert.EvidenceOf(&t.in.Header)
		a.Message = fmt.Sprintf("%s (pid %d) on %s freed %s of GPU memory in %d allocations before it ended, but not "+
			"%s in %d. The driver has freed that now. A process that runs on would leak it: look for the free that is "+
			"missing.", a.Comm, a.PID, a.Host, iec(freed.bytes), freed.allocations, iec(left.bytes), left.allocations)
		return a
	})
}

// ratio returns a/b with two decimals.
func ratio(a, b uint64) float64 { return float64(a*100/max(b, 1)) / 100 }

// advance tells the alerts of a host that everything up to a time is known.
func (t *Tracker) advance(id snapshot.HostID, now time.Time) {
	t.book.ClearAged(id, ruleUnfreed, unfreedShown, now, "the process ended ten minutes ago")
	t.book.ClearExcluded(id, &t.rules.Exclude, now)
	t.book.Advance(id, now)
}

// Alerts returns the alerts that fire and the 1,000 that cleared last, oldest first.
func (t *Tracker) Alerts() []alert.Alert {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.book.Alerts()
}

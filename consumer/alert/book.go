package alert

import (
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const (
	maxCleared       = 1000   // kept for queries
	maxFiring        = 10_000 // at a time
	maxFiringPerHost = 100
)

// Reasons for which a finding raises no alert. Rules have more.
const (
	reasonRepeat   = "repeat"   // the alert fires already
	reasonCooldown = "cooldown" // it cleared a moment ago
	reasonLimit    = "limit"    // too many alerts fire
)

// Config configures a Book.
type Config struct {
	Family   string        // begins the metrics: gputap_FAMILY_active and so on
	Cooldown time.Duration // after an alert cleared, how long a finding of its Key is a repetition; 0: not at all
}

// Book holds the alerts of one fold.
type Book struct {
	cfg        Config
	hosts      map[snapshot.HostID]*page
	cleared    []*entry // of all hosts, in the order of Alert.Compare
	firing     int      // of all hosts
	changes    []Alert  // since the last call of Changes
	raised     process.Series[raised, process.Count, *process.Count]
	suppressed map[suppressed]uint64
	families   families
}

// page is the alerts of one host.
type page struct {
	now     time.Time // latest event time that Advance reported
	entries []*entry
	latest  map[Key]*entry // the last alert of each Key
	firing  int
}

type entry struct {
	key Key
	Alert
}

// NewBook returns an empty Book.
func NewBook(cfg Config) *Book {
	return &Book{
		cfg: cfg, hosts: map[snapshot.HostID]*page{}, suppressed: map[suppressed]uint64{},
		raised: process.NewSeries[raised, process.Count](maxOthers), families: newFamilies(cfg.Family),
	}
}

// Fire raises the alert that build returns, and reports whether it did. If the alert of k fires already, or cleared
// within the cool-down before at, Fire counts a repetition of it instead. seq is the batch of the finding. build sets
// everything except ID, State and Time; a zero Since becomes at.
func (b *Book) Fire(k Key, at time.Time, seq uint64, build func() Alert) bool {
	p := b.hosts[k.HostID()]
	if p != nil {
		if e := p.latest[k]; e != nil && (e.State == Firing || at.Sub(e.Time) < b.cfg.Cooldown) {
			e.Repeats++
			e.Evidence.SeqTo = max(e.Evidence.SeqTo, seq)
			if e.State == Firing {
				b.Suppress(k.Rule, reasonRepeat)
			} else {
				b.Suppress(k.Rule, reasonCooldown)
			}
			return false
		}
	}
	if b.firing >= maxFiring || p != nil && p.firing >= maxFiringPerHost {
		b.Suppress(k.Rule, reasonLimit)
		return false
	}
	a := build()
	a.State, a.Time, a.Rule = Firing, at, k.Rule
	a.Cluster, a.Host, a.Evidence.Host = k.Process.Cluster, k.Process.Host, k.HostID().Host
	if a.Since.IsZero() {
		a.Since = at
	}
	a.ID = k.ID(a.Since)
	e := &entry{k, a}
	if !b.add(e) { // two alerts of one Key within one instant
		b.Suppress(k.Rule, reasonRepeat)
		return false
	}
	*b.raised.At(raisedOf(&e.Alert))++
	b.changes = append(b.changes, e.Alert)
	return true
}

// Fires reports whether the alert of k fires.
func (b *Book) Fires(k Key) bool {
	p := b.hosts[k.HostID()]
	return p != nil && p.latest[k] != nil && p.latest[k].State == Firing
}

// Clear ends the alert of k, if it fires. why completes the sentence "Cleared: …".
func (b *Book) Clear(k Key, at time.Time, why string) {
	if p := b.hosts[k.HostID()]; p != nil {
		if e := p.latest[k]; e != nil && e.State == Firing {
			b.clear(p, e, at, why)
		}
	}
}

// ClearProcess ends all alerts of a process, except those of rules for which keep returns true. A nil keep keeps none.
func (b *Book) ClearProcess(id schema.ProcessID, at time.Time, why string, keep func(rule string) bool) {
	b.clearAll(snapshot.HostID{Cluster: id.Cluster, Host: id.Host}, at, why, func(e *entry) bool {
		return e.key.Process == id && (keep == nil || !keep(e.Rule))
	})
}

// ClearAged ends the alerts of a rule on a host that fired at least age before at.
func (b *Book) ClearAged(id snapshot.HostID, rule string, age time.Duration, at time.Time, why string) {
	b.clearAll(id, at, why, func(e *entry) bool { return e.Rule == rule && at.Sub(e.Time) >= age })
}

// ClearExcluded ends the alerts of a host about excluded processes: they fired before the program started again.
func (b *Book) ClearExcluded(id snapshot.HostID, by *Exclude, at time.Time) {
	b.clearAll(id, at, "the process is excluded", func(e *entry) bool {
		return by.Excludes(e.Rule, &process.Info{Comm: e.Comm, User: e.User, Job: e.Job})
	})
}

// clearAll ends the alerts of a host that match, oldest first.
func (b *Book) clearAll(id snapshot.HostID, at time.Time, why string, match func(*entry) bool) {
	p := b.hosts[id]
	if p == nil || p.firing == 0 {
		return
	}
	for _, e := range p.sorted() {
		if e.State == Firing && match(e) {
			b.clear(p, e, at, why)
		}
	}
}

// sorted returns the alerts in the order of Alert.Compare.
func (p *page) sorted() []*entry {
	return slices.SortedFunc(slices.Values(p.entries), func(a, b *entry) int { return a.Compare(&b.Alert) })
}

func (b *Book) clear(p *page, e *entry, at time.Time, why string) {
	e.State, e.Time = Cleared, later(at, e.Time) // events of two threads may be slightly out of order
	e.Message += " Cleared: " + why + "."
	p.firing--
	b.firing--
	b.changes = append(b.changes, e.Alert)
	b.keep(e)
}

// keep adds an alert that cleared, and drops the oldest above the limit.
func (b *Book) keep(e *entry) {
	i, _ := slices.BinarySearchFunc(b.cleared, e, func(a, e *entry) int { return a.Compare(&e.Alert) })
	b.cleared = slices.Insert(b.cleared, i, e)
	if len(b.cleared) <= maxCleared {
		return
	}
	old := b.cleared[0]
	b.cleared = slices.Delete(b.cleared, 0, 1)
	p := b.hosts[old.key.HostID()]
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool { return e == old })
	if p.latest[old.key] == old {
		delete(p.latest, old.key)
	}
	if len(p.entries) == 0 {
		delete(b.hosts, old.key.HostID())
	}
}

// add adds an alert to its host. It returns false if the host already has one of that id.
func (b *Book) add(e *entry) bool {
	p := b.hosts[e.key.HostID()]
	if p == nil {
		p = &page{latest: map[Key]*entry{}}
		b.hosts[e.key.HostID()] = p
	}
	if slices.ContainsFunc(p.entries, func(old *entry) bool { return old.ID == e.ID }) {
		return false
	}
	p.entries = append(p.entries, e)
	if old := p.latest[e.key]; old == nil || e.newer(old) {
		p.latest[e.key] = e
	}
	if e.State == Firing {
		p.firing++
		b.firing++
	}
	return true
}

// newer reports whether e is a later alert of its Key than old: one that fires, or cleared later.
func (e *entry) newer(old *entry) bool {
	if (e.State == Firing) != (old.State == Firing) {
		return e.State == Firing
	}
	return old.Compare(&e.Alert) < 0
}

// Drop removes the alerts of k. Nothing clears: another instance raises them from now on.
func (b *Book) Drop(k Key) {
	id := k.HostID()
	p := b.hosts[id]
	if p == nil {
		return
	}
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool {
		if e.key == k && e.State == Firing {
			p.firing--
			b.firing--
		}
		return e.key == k
	})
	b.cleared = slices.DeleteFunc(b.cleared, func(e *entry) bool { return e.key == k })
	if delete(p.latest, k); len(p.entries) == 0 {
		delete(b.hosts, id)
	}
}

// Suppress counts a finding of a rule that raised no alert.
func (b *Book) Suppress(rule, reason string) { b.suppressed[suppressed{rule, reason}]++ }

// Advance tells the event time of a host. The metrics show a cleared alert as 0 for some minutes of it.
func (b *Book) Advance(id snapshot.HostID, now time.Time) {
	if p := b.hosts[id]; p != nil && now.After(p.now) {
		p.now = now
	}
}

// Changes returns copies of the alerts that fired or cleared since the last call, in order.
func (b *Book) Changes() []Alert {
	changes := b.changes
	b.changes = nil
	return changes
}

// Alerts returns the alerts that fire and those that cleared last, in the order of Alert.Compare.
func (b *Book) Alerts() []Alert {
	all := make([]Alert, 0, b.firing+len(b.cleared))
	for _, p := range b.hosts {
		for _, e := range p.entries {
			all = append(all, e.Alert)
		}
	}
	slices.SortFunc(all, func(a, b Alert) int { return a.Compare(&b) })
	return all
}

// Hosts returns the hosts with alerts or counts, in any order.
func (b *Book) Hosts() []snapshot.HostID {
	return slices.AppendSeq(b.raised.Hosts(), maps.Keys(b.hosts))
}

// Forget clears the alerts of a host and removes them with the series of the host.
func (b *Book) Forget(id snapshot.HostID) {
	if p := b.hosts[id]; p != nil {
		for _, e := range p.sorted() {
			if e.State == Firing {
				b.clear(p, e, later(p.now, e.Time), "the host was forgotten")
			}
		}
		b.cleared = slices.DeleteFunc(b.cleared, func(e *entry) bool { return e.key.HostID() == id })
		delete(b.hosts, id)
	}
	b.raised.Forget(id)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

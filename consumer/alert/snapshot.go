package alert

import (
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const (
	leastEntry  = 58 // bytes of the smallest alert in a snapshot
	leastRaised = process.MinWorkload + 3
)

// CodeShard passes over the counts that belong to no host.
func (b *Book) CodeShard(c *snapshot.Codec) {
	b.raised.CodeOthers(c, 3, func(k *raised) { process.CodeLabels(c, &k.rule, &k.severity) })
	snapshot.Map(c, &b.suppressed, 3, suppressed.compare, func(k *suppressed, findings *uint64) {
		process.CodeLabels(c, &k.rule, &k.reason)
		snapshot.Uint(c, findings)
	})
}

// CodeHost passes over the alerts and counts of one host. Restored alerts are no changes.
func (b *Book) CodeHost(c *snapshot.Codec, id snapshot.HostID) {
	b.raised.CodeHost(c, id, leastRaised, func(k *raised) {
		k.Code(c, id)
		process.CodeLabels(c, &k.rule, &k.severity)
	})
	p := b.hosts[id]
	if p == nil {
		p = &page{latest: map[Key]*entry{}}
	}
	entries, now := p.sorted(), p.now
	c.Time(&now)
	snapshot.List(c, &entries, leastEntry, func(e **entry) {
		if c.Reading() {
			*e = &entry{}
		}
		(*e).code(c, id)
		if c.Reading() && !c.Failed() {
			b.restore(c, *e)
		}
	})
	if p := b.hosts[id]; c.Reading() && p != nil {
		p.now = now
	}
}

func (b *Book) restore(c *snapshot.Codec, e *entry) {
	if e.State != Firing && e.State != Cleared {
		c.Fail("an alert has the state %q", e.State)
		return
	}
	if !b.add(e) {
		c.Fail("alert %s appears twice", e.ID)
		return
	}
	if e.State == Cleared {
		b.keep(e)
	}
}

func (e *entry) code(c *snapshot.Codec, id snapshot.HostID) {
	k := &e.key
	if c.Reading() {
		k.Process.Cluster, k.Process.Host = id.Cluster, id.Host
	}
	c.String(&k.Rule, &k.Process.BootID, &k.GPU, &k.Detail)
	c.Private(schema.PrivateJob, &k.Job)
	if k.Job != "" {
		c.Private(schema.PrivateHost, &k.Process.Host)
	}
	snapshot.Uint(c, &k.Process.PID)
	snapshot.Uint(c, &k.Process.Start)
	e.Code(c, id)
	e.Rule, e.Host = k.Rule, k.Process.Host
}

// Code passes over an alert of a host without its rule.
func (a *Alert) Code(c *snapshot.Codec, id snapshot.HostID) {
	if c.Reading() {
		a.Cluster, a.Host, a.Evidence.Host = id.Cluster, id.Host, id.Host
	}
	c.Private(schema.PrivateAlert, &a.ID)
	c.String(&a.State, &a.Severity, &a.Comm)
	c.Private(schema.PrivateContainer, &a.Container)
	c.Private(schema.PrivatePod, &a.Pod)
	c.Private(schema.PrivateUnit, &a.Unit)
	c.Private(schema.PrivateJob, &a.Job)
	c.Private(schema.PrivateUser, &a.User)
	c.String(&a.ThreadComm, &a.Address, &a.GPU, &a.Symbol)
	c.Private(schema.PrivateText, &a.Message)
	c.String(&a.Evidence.Boot, &a.Evidence.Kind)
	c.Time(&a.Time, &a.Since, &a.Start)
	snapshot.Uint(c, &a.PID, &a.UID, &a.TID)
	snapshot.Uint(c, &a.Bytes, &a.Repeats, &a.Evidence.Run, &a.Evidence.Seq, &a.Evidence.SeqFrom, &a.Evidence.SeqTo)
	c.Float64(&a.Value, &a.Baseline, &a.Score)
}

func sortedHosts(hosts map[snapshot.HostID]*page) []snapshot.HostID {
	return slices.SortedFunc(maps.Keys(hosts), snapshot.HostID.Compare)
}

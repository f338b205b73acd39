package shard

import (
	"maps"
	"slices"
	"time"
)

// shardStatus is the state of one shard in this instance.
type shardStatus struct {
	status
	owner *owner // while the shard is held
	gone  bool   // the owner has ended because Run ends
}

// apply applies an event to a shard. It returns what to do, and the shard's owner, if there is one.
func (g *Group) apply(shard int, e event) (action, *owner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applyLocked(shard, e)
}

func (g *Group) applyLocked(shard int, e event) (action, *owner) {
	s := g.shards[shard]
	if s == nil {
		s = &shardStatus{}
		g.shards[shard] = s
	}
	before := s.state
	var todo action
	s.status, todo = s.next(e, time.Now(), limits{g.opts.Settle, g.leaseTTL, g.opts.rebuildAfter(g.leaseTTL)})
	if s.state != before {
		g.log.Debug("shard changes its state", "shard", shard, "from", before.String(), "to", s.state.String())
	}
	return todo, s.owner
}

// ownerEnded takes note of how an ownership ended. If Run ends, the shard is still shown.
func (g *Group) ownerEnded(o *owner, end eventKind, final bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end == foldedAll && !o.created.Equal(g.created) {
		end = released // a bus that was removed says nothing about the present one
	}
	waitsFor := g.shards[o.waitsFor]
	if o.damaged || waitsFor != nil && waitsFor.state == finished {
		g.reopen()
	}
	g.applyLocked(o.shard, event{what: end})
	s := g.shards[o.shard]
	if s.gone = final; !final {
		s.owner = nil
	}
	g.reportLongWait(o)
	if end == foldedAll {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// reopen forgets which shards are finished: their states are gone or damaged. mu is held.
func (g *Group) reopen() {
	for shard := range g.shards {
		g.applyLocked(shard, event{what: reopened})
	}
}

// reportLongWait warns once when shards wait long for the generation before. mu is held.
func (g *Group) reportLongWait(o *owner) {
	s, waits := g.shards[o.shard], false
	if s.state == waiting && time.Since(s.waitingSince) > longWait && !g.longWaiting {
		g.longWaiting = true
		g.log.Warn("shard waits long for the generation before, which is not folded to its end", "shard", o.shard,
			"waits_for", o.waitsFor, "since", s.waitingSince)
	}
	for _, s := range g.shards {
		waits = waits || !s.waitingSince.IsZero()
	}
	g.longWaiting = g.longWaiting && waits
}

func (g *Group) stateOf(shard int) state {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.shards[shard]; s != nil {
		return s.state
	}
	return standby
}

// inState lists the shards in a state, in order.
func (g *Group) inState(want state) (list []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for shard, s := range g.shards {
		if s.state == want {
			list = append(list, shard)
		}
	}
	slices.Sort(list)
	return list
}

// Owned is a shard that this instance owns and whose state is restored.
type Owned struct {
	Shard      int
	Epoch      uint64 // of the claim
	Reader     Reader
	Superseded bool      // a shard of a later generation, which is owned too, has inherited its hosts
	Written    time.Time // when a checkpoint last had all that was folded
	Bytes      int64     // of the last checkpoint
}

// Owned lists the shards that are owned and restored, in order. After Run it lists those that were owned when Run
// ended.
func (g *Group) Owned() (list []Owned) {
	var last *owner
	g.mu.Lock()
	for _, shard := range slices.Sorted(maps.Keys(g.shards)) {
		s := g.shards[shard]
		if s.owner == nil || s.gone && !g.ended {
			continue
		}
		if reader := s.owner.loaded.Load(); reader != nil {
			list = append(list, Owned{Shard: shard, Epoch: s.owner.epoch, Reader: *reader,
				Written: *s.owner.written.Load(), Bytes: s.owner.bytes.Load()})
			last = s.owner
		}
	}
	g.mu.Unlock()
	if last == nil {
		return nil
	}
	newest, _ := last.topology.Find(last.shard)
	for i := range list {
		list[i].Superseded = list[i].Shard < newest.First
	}
	return list
}

// Counters returns the counters, which go on counting.
func (g *Group) Counters() *Counters { return &g.counters }

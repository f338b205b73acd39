package process

import (
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
)

// MaxSeries is the limit of series per metric family.
const MaxSeries = 2000

// Series holds the counts of a metric family by workload, or by another key. They outlive processes. Keys above the
// limit of series count under their Other, which belongs to no host.
type Series[K Key[K], V any, P Counts[V]] struct {
	hosts  map[snapshot.HostID]map[K]P
	others map[K]P
	left   int // series until the limit
	above  uint64
}

// Key identifies a series. State is kept per cluster and host.
type Key[K any] interface {
	comparable
	Owner() snapshot.HostID
	Other() K // the series of everything above the limit
	Page() K  // the series as metrics show it
	Compare(K) int
}

// Counts are the counts of one series.
type Counts[V any] interface {
	*V
	Add(*V)
	Code(*snapshot.Codec)
}

// NewSeries returns an empty Series that has others keys for everything above the limit.
func NewSeries[K Key[K], V any, P Counts[V]](others int) Series[K, V, P] {
	return Series[K, V, P]{hosts: map[snapshot.HostID]map[K]P{}, others: map[K]P{}, left: MaxSeries - others}
}

// At returns the counts of k, always the same ones until its host is forgotten.
func (s *Series[K, V, P]) At(k K) P {
	of := s.hosts[k.Owner()]
	if v := of[k]; v != nil {
		return v
	}
	if s.left <= 0 {
		s.above++
		return s.other(k)
	}
	if of == nil {
		of = map[K]P{}
		s.hosts[k.Owner()] = of
	}
	s.left--
	of[k] = new(V)
	return of[k]
}

// Overflow returns how often At has returned the counts of an Other because of the limit. It is not saved.
func (s *Series[K, V, P]) Overflow() uint64 { return s.above }

// Find returns the counts of k, without adding a series: if it has none, those of its Other.
func (s *Series[K, V, P]) Find(k K) P {
	if v := s.hosts[k.Owner()][k]; v != nil {
		return v
	}
	return s.other(k)
}

func (s *Series[K, V, P]) other(k K) P {
	k = k.Other()
	if s.others[k] == nil {
		s.others[k] = new(V)
	}
	return s.others[k]
}

// Forget removes the series of a host. The counts of others stay.
func (s *Series[K, V, P]) Forget(id snapshot.HostID) {
	s.left += len(s.hosts[id])
	delete(s.hosts, id)
}

// Page returns the counts by the keys that metrics show. Several keys may become the same.
func (s *Series[K, V, P]) Page() map[K]V {
	page := map[K]V{}
	add := func(all map[K]P) {
		for k, v := range all {
			k = k.Page()
			sum := page[k]
			P(&sum).Add(v)
			page[k] = sum
		}
	}
	for _, all := range s.hosts {
		add(all)
	}
	add(s.others)
	return page
}

// Hosts returns the hosts that have series, in any order.
func (s *Series[K, V, P]) Hosts() []snapshot.HostID { return slices.Collect(maps.Keys(s.hosts)) }

// CodeOthers passes over the counts above the limit, which belong to the section of no host. Each takes at least so
// many bytes.
func (s *Series[K, V, P]) CodeOthers(c *snapshot.Codec, least int, key func(*K)) {
	keys := slices.SortedFunc(maps.Keys(s.others), K.Compare)
	snapshot.List(c, &keys, least, func(k *K) {
		key(k)
		s.other(*k).Code(c)
	})
}

// CodeHost passes over the series of one host. Each takes at least so many bytes.
func (s *Series[K, V, P]) CodeHost(c *snapshot.Codec, id snapshot.HostID, least int, key func(*K)) {
	keys := slices.SortedFunc(maps.Keys(s.hosts[id]), K.Compare)
	snapshot.List(c, &keys, least, func(k *K) {
		key(k)
		v := s.hosts[id][*k]
		if !c.Reading() {
			v.Code(c)
			return
		}
		if v != nil {
			c.Fail("a series appears twice")
			return
		}
		v = new(V)
		v.Code(c)
		s.At(*k).Add(v)
	})
}

// Count is the counts of a series that has only one.
type Count uint64

// Add adds more.
func (n *Count) Add(more *Count) { *n += *more }

// Code passes over the count.
func (n *Count) Code(c *snapshot.Codec) { snapshot.Uint(c, n) }

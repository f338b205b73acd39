package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The bucket and key of the topology.
const (
	MetaBucket  = "gputap_meta"
	TopologyKey = "topology"
)

const (
	// MaxShards is the limit of shards in one generation.
	MaxShards = 1024
	// maxGenerations is the limit of closed generations whose batches are still stored.
	maxGenerations = 32
	// maxShardNumber leaves room for a thousand generations of MaxShards.
	maxShardNumber   = 1 << 20
	maxTopologyBytes = 64 << 10
)

// Topology lists the shards. A change of their number starts a new generation with new shard numbers. The shards of
// earlier generations are closed: they keep their batches and accept no more. Shard numbers are never reused.
type Topology struct {
	Generation int        `json:"generation"`         // from 1
	First      int        `json:"first"`              // number of the first shard
	Shards     int        `json:"shards"`             // number of shards
	Previous   []Topology `json:"previous,omitempty"` // closed generations whose batches are still stored, oldest first
}

// Shard returns the shard of a host in the newest generation.
func (t Topology) Shard(cluster, host string) int { return t.First + Shard(cluster, host, t.Shards) }

// Numbers returns the shards of this generation.
func (t Topology) Numbers() []int {
	numbers := make([]int, t.Shards)
	for i := range numbers {
		numbers[i] = t.First + i
	}
	return numbers
}

// Has reports whether a shard belongs to this generation.
func (t Topology) Has(shard int) bool { return shard >= t.First && shard < t.First+t.Shards }

// Generations returns all generations whose batches are stored, oldest first and t last.
func (t Topology) Generations() []Topology { return append(slices.Clone(t.Previous), t) }

// Find returns the generation of a shard, closed generations included.
func (t Topology) Find(shard int) (generation Topology, found bool) {
	for _, g := range t.Generations() {
		if g.Has(shard) {
			return g, true
		}
	}
	return Topology{}, false
}

// Next returns the generation after t, with this number of shards.
func (t Topology) Next(shards int) Topology {
	closed := t
	closed.Previous = nil
	return Topology{
		Generation: t.Generation + 1, First: t.First + t.Shards, Shards: shards,
		Previous: append(slices.Clone(t.Previous), closed),
	}
}

// Without returns t without a closed generation, whose batches were removed.
func (t Topology) Without(generation int) Topology {
	t.Previous = slices.DeleteFunc(slices.Clone(t.Previous),
		func(g Topology) bool { return g.Generation == generation })
	return t
}

// Equal reports whether both have the same generations.
func (t Topology) Equal(u Topology) bool {
	return t.Same(u) && slices.EqualFunc(t.Previous, u.Previous, Topology.Same)
}

// Same reports whether both are the same generation, so that the same shards accept batches.
func (t Topology) Same(u Topology) bool {
	return t.Generation == u.Generation && t.First == u.First && t.Shards == u.Shards
}

// Encode returns the JSON that ParseTopology reads.
func (t Topology) Encode() []byte {
	data, _ := json.Marshal(t) // cannot fail: only numbers
	return data
}

var errTopology = errors.New("invalid topology")

// ParseTopology reads and validates the value of TopologyKey.
func ParseTopology(data []byte) (Topology, error) {
	var t Topology
	if len(data) > maxTopologyBytes {
		return Topology{}, fmt.Errorf("%w: %d bytes, at most %d", errTopology, len(data), maxTopologyBytes)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return Topology{}, fmt.Errorf("%w: %w", errTopology, err)
	}
	return t, t.Validate()
}

// Validate rejects generations that are out of range, out of order, or share a shard.
func (t Topology) Validate() error {
	if len(t.Previous) > maxGenerations {
		return fmt.Errorf("%w: %d closed generations, at most %d", errTopology, len(t.Previous), maxGenerations)
	}
	generation, next := 0, 0 // behind the last one seen
	for i, g := range t.Generations() {
		switch {
		case g.Generation <= generation, g.First < next, g.First > maxShardNumber, g.Shards < 1, g.Shards > MaxShards,
			g.Generation > maxShardNumber, i < len(t.Previous) && len(g.Previous) > 0:
			return fmt.Errorf("%w: generation %d has %d shards from %d", errTopology, g.Generation, g.Shards, g.First)
		}
		generation, next = g.Generation, g.First+g.Shards
	}
	return nil
}

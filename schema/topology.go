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
	// MostShards bounds the shards of one generation.
	MostShards = 1024
	// MostGenerations bounds the closed generations that a bus may still hold.
	MostGenerations = 32
	// mostShardNumber leaves a thousand generations of the largest size.
	mostShardNumber  = 1 << 20
	maxTopologyBytes = 64 << 10
)

// Topology says which shards a bus has. Its generations have shards of their own: when their number changes,
// those of the generation before are closed and keep what they hold, and no number is used again.
type Topology struct {
	Generation int        `json:"generation"`         // from 1
	First      int        `json:"first"`              // number of its first shard
	Shards     int        `json:"shards"`             // how many there are
	Previous   []Topology `json:"previous,omitempty"` // closed generations that still hold batches, oldest first
}

// Shard places a host in the newest generation.
func (t Topology) Shard(cluster, host string) int { return t.First + Shard(cluster, host, t.Shards) }

// Numbers are the shards of this generation.
func (t Topology) Numbers() []int {
	numbers := make([]int, t.Shards)
	for i := range numbers {
		numbers[i] = t.First + i
	}
	return numbers
}

// Has reports whether a shard is one of this generation.
func (t Topology) Has(shard int) bool { return shard >= t.First && shard < t.First+t.Shards }

// Generations are all of which the bus holds batches, oldest first and t last.
func (t Topology) Generations() []Topology { return append(slices.Clone(t.Previous), t) }

// Find gives the generation of a shard, closed ones too.
func (t Topology) Find(shard int) (generation Topology, found bool) {
	for _, g := range t.Generations() {
		if g.Has(shard) {
			return g, true
		}
	}
	return Topology{}, false
}

// Next is the generation after t, with another number of shards.
func (t Topology) Next(shards int) Topology {
	closed := t
	closed.Previous = nil
	return Topology{
		Generation: t.Generation + 1, First: t.First + t.Shards, Shards: shards,
		Previous: append(slices.Clone(t.Previous), closed),
	}
}

// Without is t after the batches of a closed generation were removed.
func (t Topology) Without(generation int) Topology {
	t.Previous = slices.DeleteFunc(slices.Clone(t.Previous), func(g Topology) bool { return g.Generation == generation })
	return t
}

// Equal reports whether both say the same.
func (t Topology) Equal(u Topology) bool {
	return t.Same(u) && slices.EqualFunc(t.Previous, u.Previous, Topology.Same)
}

// Same reports whether both are one generation: the same shards take batches.
func (t Topology) Same(u Topology) bool {
	return t.Generation == u.Generation && t.First == u.First && t.Shards == u.Shards
}

// Encode is the form that ParseTopology reads.
func (t Topology) Encode() []byte {
	data, _ := json.Marshal(t) // numbers alone: nothing to fail
	return data
}

var errTopology = errors.New("no topology")

// ParseTopology reads what a bus says of itself.
func ParseTopology(data []byte) (Topology, error) {
	var t Topology
	if len(data) > maxTopologyBytes {
		return Topology{}, fmt.Errorf("%w: %d bytes are more than %d", errTopology, len(data), maxTopologyBytes)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return Topology{}, fmt.Errorf("%w: %w", errTopology, err)
	}
	return t, t.Validate()
}

// Validate refuses generations that are out of range or order, or share a shard.
func (t Topology) Validate() error {
	if len(t.Previous) > MostGenerations {
		return fmt.Errorf("%w: %d closed generations are more than %d", errTopology, len(t.Previous), MostGenerations)
	}
	generation, next := 0, 0 // behind the last one seen
	for i, g := range t.Generations() {
		switch {
		case g.Generation <= generation, g.First < next, g.First > mostShardNumber, g.Shards < 1, g.Shards > MostShards,
			g.Generation > mostShardNumber, i < len(t.Previous) && len(g.Previous) > 0:
			return fmt.Errorf("%w: generation %d has %d shards from %d", errTopology, g.Generation, g.Shards, g.First)
		}
		generation, next = g.Generation, g.First+g.Shards
	}
	return nil
}

package schema

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The bucket and key of the topology.
const (
	MetaBucket  = "gputap_meta"
	TopologyKey = "topology"
)

// MostShards bounds the shards of one generation.
const MostShards = 1024

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

// Next is the generation after t, with another number of shards.
func (t Topology) Next(shards int) Topology {
	closed := t
	closed.Previous = nil
	return Topology{
		Generation: t.Generation + 1, First: t.First + t.Shards, Shards: shards,
		Previous: append(append([]Topology{}, t.Previous...), closed),
	}
}

var errTopology = errors.New("no topology")

// ParseTopology reads what a bus says of itself.
func ParseTopology(data []byte) (Topology, error) {
	var t Topology
	if err := json.Unmarshal(data, &t); err != nil {
		return Topology{}, fmt.Errorf("%w: %w", errTopology, err)
	}
	if err := t.validate(); err != nil {
		return Topology{}, err
	}
	for i := range t.Previous {
		if err := t.Previous[i].validate(); err != nil {
			return Topology{}, fmt.Errorf("previous generation: %w", err)
		}
	}
	return t, nil
}

func (t Topology) validate() error {
	if t.Generation < 1 || t.First < 0 || t.Shards < 1 || t.Shards > MostShards {
		return fmt.Errorf("%w: generation %d has %d shards from %d", errTopology, t.Generation, t.Shards, t.First)
	}
	return nil
}

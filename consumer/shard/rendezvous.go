package shard

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"github.com/gputap/gputap/schema"
)

// placements places the shards of each generation separately. Shards of a closed generation end when they are folded:
// if they counted together with the present ones, their owners would be left with fewer shards.
func placements(t *schema.Topology, members []member) map[int]string {
	preferred := placement(t.Numbers(), members)
	for i := range t.Previous {
		maps.Copy(preferred, placement(t.Previous[i].Numbers(), members))
	}
	return preferred
}

// placement returns which member should own each shard (rendezvous hashing): the member with the highest affinity among
// those that can read the shard's state and have less than an even share. Every member computes the same result, and
// few other shards move when a member joins or leaves. If all members refuse a shard, it is placed as if none did.
func placement(shards []int, members []member) map[int]string {
	preferred := make(map[int]string, len(shards))
	if len(members) == 0 {
		return preferred
	}
	share := (len(shards) + len(members) - 1) / len(members)
	has := map[string]int{}
	for _, shard := range slices.Sorted(slices.Values(shards)) {
		able := slices.DeleteFunc(slices.Clone(members), func(m member) bool {
			return slices.Contains(m.refuses, shard)
		})
		if len(able) == 0 {
			able = members
		}
		ranked := slices.SortedFunc(slices.Values(able), func(a, b member) int {
			return cmp.Or(cmp.Compare(affinity(shard, b.name), affinity(shard, a.name)), cmp.Compare(a.name, b.name))
		})
		// If few members can read many states, they get more than their share.
		i := max(0, slices.IndexFunc(ranked, func(m member) bool { return has[m.name] < share }))
		preferred[shard] = ranked[i].name
		has[ranked[i].name]++
	}
	return preferred
}

func affinity(shard int, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(append([]byte(member), 0), int64(shard), 10))
	v := h.Sum64() // FNV sums of similar names are similar: mix
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

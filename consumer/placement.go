package consumer

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"github.com/gputap/gputap/schema"
)

// placements gives out the shards of each generation by themselves. Those of a closed one end when they are folded: counted
// together, whoever has them would be left with fewer of the present ones.
func placements(t *schema.Topology, members []member) map[int]string {
	owner := placement(t.Numbers(), members)
	for i := range t.Previous {
		maps.Copy(owner, placement(t.Previous[i].Numbers(), members))
	}
	return owner
}

// placement says which member should own each shard: the one that the shard's hash likes best, of those that can read its
// state, and that has less than its even part. Every member comes to the same answer, and one that comes or goes moves few
// shards besides its own. A shard that all refuse is placed as if none did.
func placement(shards []int, members []member) map[int]string {
	owner := make(map[int]string, len(shards))
	if len(members) == 0 {
		return owner
	}
	most := (len(shards) + len(members) - 1) / len(members)
	has := map[string]int{}
	for _, shard := range slices.Sorted(slices.Values(shards)) {
		ranked := slices.SortedFunc(slices.Values(candidates(shard, members)), func(a, b string) int {
			return cmp.Or(cmp.Compare(affinity(shard, b), affinity(shard, a)), cmp.Compare(a, b))
		})
		// Where few can read many states, they have more than their part.
		i := max(0, slices.IndexFunc(ranked, func(m string) bool { return has[m] < most }))
		owner[shard] = ranked[i]
		has[ranked[i]]++
	}
	return owner
}

func candidates(shard int, members []member) (can []string) {
	var all []string
	for _, m := range members {
		all = append(all, m.name)
		if !slices.Contains(m.refuses, shard) {
			can = append(can, m.name)
		}
	}
	if len(can) == 0 {
		return all
	}
	return can
}

func affinity(shard int, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(append([]byte(member), 0), int64(shard), 10))
	v := h.Sum64() // similar names have similar sums: mix
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

package consumer

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// placement says which member should own each shard: the one that the shard's hash likes best and that has less than its
// even part. Every member comes to the same answer, and one that comes or goes moves few shards besides its own.
func placement(shards []int, members []string) map[int]string {
	owner := make(map[int]string, len(shards))
	if len(members) == 0 {
		return owner
	}
	most := (len(shards) + len(members) - 1) / len(members)
	has := map[string]int{}
	for _, shard := range slices.Sorted(slices.Values(shards)) {
		ranked := slices.Clone(members)
		slices.SortFunc(ranked, func(a, b string) int {
			return cmp.Or(cmp.Compare(affinity(shard, b), affinity(shard, a)), cmp.Compare(a, b))
		})
		i := slices.IndexFunc(ranked, func(m string) bool { return has[m] < most })
		owner[shard] = ranked[i]
		has[ranked[i]]++
	}
	return owner
}

func affinity(shard int, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(append([]byte(member), 0), int64(shard), 10))
	v := h.Sum64() // similar names have similar sums: mix
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

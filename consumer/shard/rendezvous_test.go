package shard

import (
	"maps"
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestPlacementIgnoresClosedShards: shards of closed generations do not leave a member with fewer present ones.
func TestPlacementIgnoresClosedShards(t *testing.T) {
	t.Parallel()
	members := []member{{name: "a"}, {name: "b"}, {name: "c"}}
	for shards := range 30 {
		topology := schema.Topology{Generation: 1, Shards: 4}.Next(7).Next(3 + 3*shards)
		owner, has := placements(&topology, members), map[string]int{}
		for _, shard := range topology.Numbers() {
			has[owner[shard]]++
		}
		if want := 1 + shards; has["a"] != want || has["b"] != want || has["c"] != want || len(owner) != 4+7+3*want {
			t.Errorf("%d shards are placed %v", topology.Shards, has)
		}
	}
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	shards := make([]int, 16)
	for i := range shards {
		shards[i] = i
	}
	a, b, c := member{name: "a"}, member{name: "b"}, member{name: "c"}
	three := placement(shards, []member{a, b, c})
	count := map[string]int{}
	for _, m := range three {
		count[m]++
	}
	for m, n := range count {
		if n > 6 {
			t.Errorf("%s has %d of 16 shards", m, n)
		}
	}
	if len(placement(shards, nil)) != 0 || !maps.Equal(three, placement(shards, []member{a, b, c})) {
		t.Error("placement is no function of shards and members")
	}
	moved := 0
	for shard, m := range placement(shards, []member{a, b}) {
		if three[shard] != "c" && three[shard] != m {
			moved++
		}
	}
	if moved > 5 {
		t.Errorf("%d shards move between two members that stay", moved)
	}
	a.refuses, b.refuses = []int{3, 5}, []int{3}
	some := placement(shards, []member{a, b, c})
	if some[3] != "c" || some[5] == "a" {
		t.Errorf("shards that cannot be read are placed on %s and %s", some[3], some[5])
	}
	c.refuses = []int{3}
	if got := placement(shards, []member{a, b, c})[3]; got == "" {
		t.Error("a shard that all refuse is nobody's")
	}
	c.refuses = nil
	a.refuses, b.refuses = shards, shards
	for shard, m := range placement(shards, []member{a, b, c}) {
		if m != "c" {
			t.Errorf("shard %d, which c alone can read, is placed on %s", shard, m)
		}
	}
}

package schema

import (
	"strings"
	"testing"
)

func TestTopologyNumbersAreNeverUsedAgain(t *testing.T) {
	topology := Topology{Generation: 1, Shards: 1}
	used := map[int]bool{}
	for _, shards := range []int{16, 4, 1024, 1} {
		for _, n := range topology.Numbers() {
			if used[n] {
				t.Fatalf("shard %d is used twice", n)
			}
			used[n] = true
			if g, found := topology.Find(n); !found || !g.Same(topology) {
				t.Errorf("shard %d is found in %+v", n, g)
			}
		}
		topology = topology.Next(shards)
		if shard := topology.Shard("lab", "gpu01"); shard < topology.First || shard >= topology.First+shards {
			t.Errorf("shard %d of %+v", shard, topology)
		}
		read, err := ParseTopology(topology.Encode())
		if err != nil || !read.Equal(topology) {
			t.Errorf("%v: read %+v, wrote %+v", err, read, topology)
		}
	}
	if len(topology.Previous) != 4 || topology.Previous[1].Shards != 16 || topology.Previous[1].Previous != nil {
		t.Errorf("closed: %+v", topology.Previous)
	}
	removed := topology.Without(2)
	if _, found := removed.Find(1); found || len(topology.Previous) != 4 || topology.Equal(removed) ||
		!topology.Same(removed) {
		t.Errorf("without generation 2: %+v of %+v", removed, topology)
	}
	if _, found := topology.Find(topology.First + topology.Shards); found {
		t.Error("a shard that is none is found")
	}
}

func TestParseTopologyRefuses(t *testing.T) {
	many := Topology{Generation: 1, Shards: 1}
	for range maxGenerations + 1 {
		many = many.Next(1)
	}
	tests := []struct{ name, value string }{
		{"nothing", ``},
		{"a word", `"topology"`},
		{"a list", `[]`},
		{"no figures", `{}`},
		{"text behind", `{"generation":1,"first":0,"shards":1} x`},
		{"no shard", `{"generation":1,"first":0,"shards":0}`},
		{"too many shards", `{"generation":1,"first":0,"shards":1025}`},
		{"a number beyond all", `{"generation":1,"first":9223372036854775807,"shards":1}`},
		{"more than a number", `{"generation":1,"first":0,"shards":1e99}`},
		{"before the first", `{"generation":1,"first":-1,"shards":1}`},
		{"generation 0", `{"generation":0,"first":0,"shards":1}`},
		{"shared shards", `{"generation":2,"first":3,"shards":1,"previous":[{"generation":1,"first":0,"shards":4}]}`},
		{"wrong order", `{"generation":1,"first":4,"shards":1,"previous":[{"generation":1,"first":0,"shards":4}]}`},
		{
			"nested",
			`{"generation":3,"first":4,"shards":1,"previous":[{"generation":2,"first":2,"shards":1,"previous":[{"generation":1,"first":0,"shards":1}]}]}`,
		},
		{"too many generations", string(many.Encode())},
		{"deep", strings.Repeat(`{"previous":[`, 4000)},
		{"long", `{"generation":1,"first":0,"shards":1` + strings.Repeat(" ", 64<<10) + `}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ParseTopology([]byte(tt.value)); err == nil {
				t.Errorf("takes %+v", got)
			}
		})
	}
	if got, err := ParseTopology([]byte(`{"generation":1,"first":0,"shards":3,"later":{"x":1}}`)); err != nil ||
		got.Shards != 3 {
		t.Errorf("a key of later versions: %+v, %v", got, err)
	}
}

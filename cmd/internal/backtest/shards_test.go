package backtest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestAlertsOfEveryShard reads a recording of two shards. A process of each shard runs out of memory.
func TestAlertsOfEveryShard(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	var streams []recording.Stream
	for shard := range 2 {
		streams = append(streams, recording.Stream{Name: schema.StreamName(shard), Shard: shard,
			Created: consumertest.Wall, State: recording.KnowledgeComplete})
	}
	check(t, w.AddStreams(recording.Selection{}, streams))
	for shard, host := range []string{"gpu-0", "gpu-1"} {
		h := consumertest.Memory(t, host)
		p := h.Process(7, second/2, "on-"+host)
		p.GPU = &schema.GPU{UUID: "GPU-0"}
		p.Alloc(7, 0x1000, gib, second, 0).Fail("cuMemAlloc_v2", 7, 2, gib, 2*second).Exit(60 * second)
		check(t, w.Append(&recording.Message{Shard: shard, Sequence: 1, Stored: consumertest.Wall,
			Subject: schema.Subject(shard, "test", host, schema.KindMemory), Data: bytes.Clone(h.Message())}))
	}
	check(t, w.Close())

	r := result(t, path, "--set", "anomaly.rules.oom.mode=off")
	want := []string{"oom on-gpu-0", "oom on-gpu-1"}
	if got := names(r.OnlyCurrent); !slices.Equal(got, want) {
		t.Errorf("alerts %q, want %q", got, want)
	}
	if got := ruleOf(&r, "oom"); got != "2 critical | - | - | -" {
		t.Errorf("oom: %s", got)
	}
}

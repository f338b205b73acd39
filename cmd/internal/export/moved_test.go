package export

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestOrderOfMovedHosts: the number of shards changed, and the file has the later messages of a host first.
func TestOrderOfMovedHosts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	check(t, w.AddStreams(recording.Selection{}, []recording.Stream{
		{Created: consumertest.Wall, State: recording.KnowledgeComplete},
		{Shard: 1, Created: consumertest.Wall, State: recording.KnowledgeNone},
	}))
	h := consumertest.Memory(t, "gpu-7")
	p := h.Process(7, 1, "train")
	var messages []recording.Message
	for i := range uint64(4) {
		p.Alloc(7, 0x100*(1+i), 100, schema.KTime(1e9*(1+i)), 0)
		shard := int(i / 2)
		messages = append(messages, recording.Message{Shard: shard, Sequence: 1 + i, Stored: consumertest.Wall,
			Subject: schema.Subject(shard, "test", "gpu-7", schema.KindMemory), Data: bytes.Clone(h.Message())})
	}
	for _, i := range []int{2, 3, 0, 1} {
		check(t, w.Append(&messages[i]))
	}
	check(t, w.Close())
	stdout, err := typed(t, "jsonl", path, "-o", "-")
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n") // each begins with its time
	if err != nil || len(lines) != 4 || !slices.IsSorted(lines) {
		t.Errorf("%v\n%s", err, stdout)
	}
}

package backtest

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
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

// TestMovedHost: the number of shards changed between the two batches of a host. The file has the later one first. A
// third batch is absent.
func TestMovedHost(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-0")
	p := h.Process(7, second/2, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	p.Alloc(7, 0x1000, gib, second, 0)
	first := bytes.Clone(h.Message())
	p.Fail("cuMemAlloc_v2", 7, 2, gib, 2*second).Exit(60 * second)
	second := bytes.Clone(h.Message())
	h.Header.Seq++
	p.Alloc(7, 0x2000, gib, 61*1e9, 0)
	fourth := bytes.Clone(h.Message())
	file := func(shard int, list ...[]byte) string {
		path := filepath.Join(t.TempDir(), "run.gputap")
		file, err := os.Create(path)
		check(t, err)
		w, err := recording.NewWriter(file)
		check(t, err)
		check(t, w.AddStreams(recording.Selection{}, []recording.Stream{
			{Created: consumertest.Wall, State: recording.KnowledgeComplete},
			{Shard: 1, Created: consumertest.Wall, State: recording.KnowledgeNone},
		}))
		for i, data := range list {
			check(t, w.Append(&recording.Message{Shard: shard, Sequence: uint64(1 + i), Data: data,
				Stored: consumertest.Wall, Subject: schema.Subject(shard, "test", "gpu-0", schema.KindMemory)}))
		}
		check(t, w.Append(&recording.Message{Sequence: 9, Data: first, Stored: consumertest.Wall,
			Subject: schema.Subject(0, "test", "gpu-0", schema.KindMemory)}))
		check(t, w.Close())
		return path
	}
	r := result(t, file(1, second))
	if got := names(r.OnlyCurrent); !r.Complete || len(r.Missing) > 0 || len(got) > 0 ||
		ruleOf(&r, "oom") != "1 critical | 1 critical | - | -" {
		t.Errorf("%t, missing %q, alerts %q, oom %s", r.Complete, r.Missing, got, ruleOf(&r, "oom"))
	}
	if _, err := typed(t, file(1, second, fourth)); app.ExitCode(err) != 4 ||
		!strings.Contains(err.Error(), "1 batch is missing") {
		t.Errorf("without a batch: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestErrorsOfTheOutput: an answer that cannot be written is an error.
func TestErrorsOfTheOutput(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"text", "json"} {
		cmd := Command(&app.Process{Stdout: full{}, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"backtest", sizes, "-o", form})
		if err := cmd.ExecuteContext(t.Context()); app.ExitCode(err) != 1 {
			t.Errorf("%s: %v", form, err)
		}
	}
}

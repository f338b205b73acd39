//go:build bpf

package producer

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/preflight"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestConfined: a program under a seccomp filter survives, and its calls are seen.
func TestConfined(t *testing.T) {
	if preflight.ReturnProbes() != nil {
		t.Skip("this Linux ends confined programs")
	}
	calls := map[schema.Op]int{}
	each(t, capture(t, []string{"memory"}, "confined"), schema.KindMemory, func(b *schema.Batch) {
		for i := range b.Events {
			calls[b.Calls[b.Memory(i).Call].Op]++
		}
	})
	if calls[schema.OpAlloc] != 10 || calls[schema.OpFree] != 5 {
		t.Errorf("10 allocations and 5 frees were made, seen %v", calls)
	}
}

var errTried = errors.Join(errors.New("signal: bad system call"), preflight.ErrReturnProbes)

func unsafeReturns(t *testing.T) {
	returnProbes = func() error { return errTried }
	t.Cleanup(func() { returnProbes = preflight.ReturnProbes })
}

// TestEntriesOnly: where return probes are unsafe, gputap sees launches, with kernel names from memory, and no event
// that needs a return.
func TestEntriesOnly(t *testing.T) {
	unsafeReturns(t)
	messages := capture(t, all, "every")
	seen := map[schema.Kind]uint64{}
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindCopy, schema.KindLaunch} {
		each(t, messages, kind, func(b *schema.Batch) {
			seen[kind] += uint64(b.Events)
			for _, f := range b.Funcs {
				if f.Name != "" && !f.Read {
					t.Errorf("name %s comes from a return probe", f.Name)
				}
			}
		})
	}
	if seen[schema.KindMemory] != 1 || seen[schema.KindCopy] != 0 || seen[schema.KindLaunch] != 6 {
		t.Errorf("seen %v, want 6 launches and the end of the process", seen)
	}
}

// TestUnsafeReturnsAreRejected: features that need return probes are rejected where these are unsafe, unless the user
// accepts the risk.
func TestUnsafeReturnsAreRejected(t *testing.T) {
	producertest.RequireBPF(t)
	unsafeReturns(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.Libraries = "test", []string{"memory",
		"copy"}, []string{producertest.Built(t, "stub/libcuda.so.1")}
	js := newBus(t)
	if _, err := New(cfg, "test", js, slog.New(slog.DiscardHandler)); !errors.Is(err, preflight.ErrReturnProbes) {
		t.Errorf("New returned %v", err)
	}
	cfg.UnsafeReturns = true
	p, err := New(cfg, "test", js, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

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

// TestConfined: a program under a seccomp filter lives, and its calls are seen.
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

// TestEntriesOnly: where return probes are unsafe launches are seen, with names that nobody told, and
// nothing that needs a return.
func TestEntriesOnly(t *testing.T) {
	unsafeReturns(t)
	messages := capture(t, all, "every")
	seen := map[schema.Kind]uint64{}
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindCopy, schema.KindLaunch} {
		each(t, messages, kind, func(b *schema.Batch) {
			seen[kind] += uint64(b.Events)
			for _, f := range b.Funcs {
				if f.Name != "" && !f.Read {
					t.Errorf("was told the name %s, which is told at a return", f.Name)
				}
			}
		})
	}
	if seen[schema.KindMemory] != 1 || seen[schema.KindCopy] != 0 || seen[schema.KindLaunch] != 6 {
		t.Errorf("seen %v, want 6 launches and the end of the process", seen)
	}
}

// TestReturnsRefused: features that need returns are refused where these are unsafe, unless the user
// takes the risk.
func TestReturnsRefused(t *testing.T) {
	producertest.RequireBPF(t)
	unsafeReturns(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.Libraries = "test", []string{"memory", "copy"}, []string{producertest.Built(t, "stub/libcuda.so.1")}
	js := newBus(t)
	if _, err := New(cfg, "test", js, slog.New(slog.DiscardHandler)); !errors.Is(err, preflight.ErrReturnProbes) {
		t.Errorf("New says %v", err)
	}
	cfg.UnsafeReturns = true
	p, err := New(cfg, "test", js, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

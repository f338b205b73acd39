//go:build bpf

package filter

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
)

func newTap(t *testing.T) *bpf.Tap {
	t.Helper()
	producertest.RequireBPF(t)
	tap, err := bpf.Load(bpf.MinRingBytes, false, true, bpf.Filter{Cgroups: bpf.FilterCgroup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.Close)
	return tap
}

// TestRemovedGroupIsForgotten: a group that was removed stays for no more than two walks of the tree.
func TestRemovedGroupIsForgotten(t *testing.T) {
	tap := newTap(t)
	group, dir := producertest.NewCgroup(t, "gone")
	tree, err := NewCgroupTree(config.Filter{Cgroup: []string{group, "stays"}}, tap, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	producertest.NewCgroup(t, "stays")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 1, 1} {
		if err := tree.walk(); err != nil {
			t.Fatal(err)
		}
		if len(tree.added) != want {
			t.Errorf("%d groups in the filter, want %d", len(tree.added), want)
		}
	}
}

// TestNewGroupIsAddedOnce: a group that is made while gputap runs is in the filter once, whether Linux reports it or
// polling finds it.
func TestNewGroupIsAddedOnce(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprintf("polling=%v", polling), func(t *testing.T) {
			added := make(messages, 10)
			tree, err := NewCgroupTree(config.Filter{Cgroup: []string{"new-group"}}, newTap(t), slog.New(added))
			if err != nil {
				t.Fatal(err)
			}
			if polling {
				tree.Close() // as if Linux had no such tracepoint
			}
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() { tree.Run(ctx) })
			producertest.NewCgroup(t, "new-group")
			for <-added != "control group passes the filter" {
			}
			stop()
			group.Wait()
			if n := len(tree.added); n != 1 {
				t.Errorf("%d groups in the filter, want 1", n)
			}
		})
	}
}

// messages is a log handler that passes on the messages.
type messages chan string

func (m messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m messages) WithGroup(string) slog.Handler            { return m }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m <- r.Message
	return nil
}

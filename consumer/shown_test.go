package consumer

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/page"
	"github.com/gputap/gputap/consumer/shard"
)

// TestMergedFoldsShowTheSame compares several folds, whose hosts share names, with one fold of all hosts. There is one
// exception: the choice of kernels with their own series depends on all hosts of a shard.
func TestMergedFoldsShowTheSame(t *testing.T) {
	t.Parallel()
	shown := func(parts ...prometheus.Collector) (lines []string) {
		joined := page.New("", func() []prometheus.Collector { return parts })
		for line := range strings.Lines(string(consumertest.Page(t, joined))) {
			if strings.HasPrefix(line, "#") || strings.Contains(line, "kernel_launches_by_name") {
				continue
			}
			value := strings.LastIndexByte(line, ' ') + 1
			// sums of seconds are rounded
			if f, err := strconv.ParseFloat(strings.TrimSpace(line[value:]), 64); err == nil {
				line = fmt.Sprintf("%s%.12g\n", line[:value], f)
			}
			lines = append(lines, line)
		}
		return lines
	}
	for seed := range uint64(2) {
		steps := consumertest.Traffic(t, seed, 200)
		for _, fold := range folds {
			whole, of := fold.fresh(), map[string]Stateful{"c0": fold.fresh(), "c1": fold.fresh()} // both have a host b
			consumertest.Take(t, whole, steps...)
			for _, s := range steps {
				from := s.From
				if s.Lost == 0 {
					from = consumertest.Decode(t, s.Message).Header
				}
				consumertest.Take(t, of[from.Cluster], s)
			}
			got := shown(of["c0"].(prometheus.Collector), of["c1"].(prometheus.Collector))
			if want := shown(whole.(prometheus.Collector)); !slices.Equal(got, want) {
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("%s, %d lines of %d: got\n%swant\n%s", whole.Name(), len(got), len(want), got[i],
							want[i])
					}
				}
			}
		}
	}
}

// TestSupersededShardsAreNotShown checks that only the shards that inherited the hosts show them.
func TestSupersededShardsAreNotShown(t *testing.T) {
	t.Parallel()
	host := consumertest.Memory(t, "h")
	host.Process(1, 1, "x").Alloc(1, 1<<20, 1000, 1, 1)
	steps := consumertest.Steps(host.Message())
	for _, tt := range []struct {
		name   string
		loaded []int
		shown  []int
	}{
		{"one generation", []int{0, 1}, []int{0, 1}},
		{"the next waits", []int{0, 1}, []int{0, 1}},
		{"one has inherited", []int{0, 1, 3}, []int{3}},
		{"all have", []int{0, 1, 2, 3}, []int{2, 3}},
		{"of three generations", []int{1, 2, 4}, []int{4}},
		{"the last of three waits", []int{1, 2}, []int{2}},
		{"none is loaded", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{}, nil, func() Stateful { return leak.New(leak.Config{}) }, slog.New(slog.DiscardHandler))
			c.owned = func() (list []shard.Owned) {
				for _, number := range tt.loaded {
					fold := leak.New(leak.Config{})
					consumertest.Take(t, fold, steps...)
					r := newReader(ReaderOptions{Shard: number}, nil, fold, slog.New(slog.DiscardHandler))
					superseded := !slices.Contains(tt.shown, number)
					list = append(list, shard.Owned{Shard: number, Reader: &statefulReader{r, fold},
						Superseded: superseded})
				}
				return list
			}
			if got := (&instance{Consumer: c}).shards(); !slices.Equal(got, tt.shown) {
				t.Errorf("shards %v are visible, want %v", got, tt.shown)
			}
			shown := string(consumertest.Page(t, c))
			for _, line := range []string{
				fmt.Sprintf(`gputap_cuda_memory_allocated_bytes_total{UUID="",cluster="test",comm="x",container="",gpu="",hostname="h",job="",kind="device",pod="",unit="",user=""} %d`, 1000*len(tt.shown)),
				fmt.Sprintf(`gputap_consumer_owned_shards{consumer="leak"} %d`, len(tt.loaded)),
			} {
				if len(tt.shown) > 0 && !strings.Contains(shown, line+"\n") {
					t.Errorf("no line %s", line)
				}
			}
		})
	}
}

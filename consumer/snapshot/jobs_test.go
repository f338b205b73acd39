package snapshot_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/rank"
)

// jobMessages returns what the hosts of two jobs publish, each with a slow rank, in order.
func jobMessages(tb testing.TB, seed uint64, every, until time.Duration) (all []consumertest.Message) {
	for i, slow := range []int{3, 1} {
		j := &consumertest.Job{Name: fmt.Sprint("slurm:", i), Ranks: 4, PerHost: 2, Every: every,
			Random: rand.New(rand.NewPCG(seed, uint64(i))), Step: consumertest.Gloo(5, slow, 150*time.Millisecond)}
		all = append(all, j.Messages(tb, until)...)
	}
	slices.SortStableFunc(all, func(a, b consumertest.Message) int { return cmp.Compare(a.At, b.At) })
	return all
}

// rankTraffic returns n messages of ranks, and losses between them.
func rankTraffic(tb testing.TB, seed uint64, n int) (steps []consumertest.Step) {
	for i, m := range jobMessages(tb, seed, 2*time.Second, time.Duration(n)*time.Second) {
		steps = append(steps, consumertest.Step{Message: m.Data})
		if i%31 == 30 {
			steps = append(steps, consumertest.Step{Lost: 1, From: consumertest.Decode(tb, m.Data).Header})
		}
	}
	return steps[:n]
}

// jobTraffic returns n summaries of ranks.
func jobTraffic(tb testing.TB, seed uint64, n int) (steps []consumertest.Step) {
	f := rank.New(rank.Config{Publish: func(s rank.Summary) {
		steps = append(steps, consumertest.Step{Message: bytes.Clone(s.Message)})
	}})
	for _, m := range jobMessages(tb, seed, 10*time.Second, time.Duration(n)*4*time.Second) {
		consumertest.Take(tb, f, consumertest.Step{Message: m.Data})
	}
	return steps[:n]
}

//go:build bpf

package producer

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// round is one line of the scenario gaps: bounds that the program measured around its calls.
type round struct {
	bytes                            uint64
	pinned, same                     int
	gapLow, gapHigh, copyLow, copyUp uint64
}

// TestPairsEqualTheProgramsOwnTimes: each gap and each end of a copy lies within the bounds that the program measured,
// although its thread changes the CPU in each round. Each copy has the class of its memory.
func TestPairsEqualTheProgramsOwnTimes(t *testing.T) {
	producertest.RequireBPF(t)
	js := newBus(t)
	cfg := config.DefaultRunCommand().Producer
	cfg.Host, cfg.Libraries = "test", []string{producertest.Built(t, "stub/libcuda.so.1")}
	p, err := New(cfg, "test", js, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	out, err := exec.Command(producertest.Built(t, "workload"), "gaps", "--count", "300").Output()
	if err != nil {
		t.Error(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var rounds []round
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var r round
		if _, err := fmt.Sscan(lines.Text(), &r.bytes, &r.pinned, &r.same, &r.gapLow, &r.gapHigh, &r.copyLow,
			&r.copyUp); err != nil {
			t.Fatal(err)
		}
		rounds = append(rounds, r)
	}
	if len(rounds) != 300 || p.metrics.unpaired.Load() != 0 {
		t.Fatalf("%d rounds, %d unknown gaps", len(rounds), p.metrics.unpaired.Load())
	}
	messages := stored(t, js)
	checkGaps(t, messages, rounds)
	checkCopies(t, messages, rounds)
}

func checkGaps(t *testing.T, messages [][]byte, rounds []round) {
	var gaps []schema.Sync
	each(t, messages, schema.KindSync, func(b *schema.Batch) {
		for i := range b.Events {
			if e := b.Sync(i); b.Calls[e.Call].Op == schema.OpResume {
				if e.GPU == 0 || b.Calls[e.Call].Symbol != "cuLaunchKernel" {
					t.Errorf("a gap of %s, GPU %d", b.Calls[e.Call].Symbol, e.GPU)
				}
				gaps = append(gaps, e)
			}
		}
	})
	slices.SortFunc(gaps, func(a, b schema.Sync) int { return int(a.Time) - int(b.Time) })
	if len(gaps) != len(rounds) {
		t.Fatalf("%d gaps, want %d", len(gaps), len(rounds))
	}
	for i, r := range rounds {
		if d := gaps[i].Duration; d < r.gapLow || d > r.gapHigh {
			t.Errorf("round %d: a gap of %d ns, the program measured %d to %d", i, d, r.gapLow, r.gapHigh)
		}
	}
}

func checkCopies(t *testing.T, messages [][]byte, rounds []round) {
	submitted, ended := 0, 0
	each(t, messages, schema.KindCopy, func(b *schema.Batch) {
		for i := range b.Events {
			e := b.Copy(i)
			at := int(e.Bytes/(4*kib)) - 1
			r := rounds[at]
			if want := []schema.HostMem{schema.HostMemPageable, schema.HostMemPinned}[r.pinned]; e.HostMem != want {
				t.Errorf("round %d: host memory is %s, want %s", at, e.HostMem, want)
			}
			behind := at > 0 && rounds[at-1].same == 1
			switch op := b.Calls[e.Call].Op; {
			case op == schema.OpCopyAsync:
				submitted++
			case op == schema.OpCopiedBehind != behind:
				t.Errorf("round %d: op %s, want kernels before it: %v", at, op, behind)
			case e.Duration < r.copyLow || e.Duration > r.copyUp:
				t.Errorf("round %d: a copy of %d ns, the program measured %d to %d", at, e.Duration, r.copyLow,
					r.copyUp)
			default:
				ended++
			}
		}
	})
	if submitted != len(rounds) || ended != len(rounds) {
		t.Errorf("%d copies, %d ended, want %d", submitted, ended, len(rounds))
	}
}

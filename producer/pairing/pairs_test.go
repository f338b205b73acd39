package pairing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// host is the calls of one process of a test.
type host struct {
	*Pairs
	process Process
	threads [9]Thread
	lost    uint64
}

func newHost() *host { return &host{Pairs: New(true)} }

func (h *host) at(tid uint32, q uint64) Place { return Place{CUDAStream: q, Context: 7, TID: tid} }

func (h *host) launch(tid uint32, q, at uint64) {
	l := bpf.LaunchRecord{Head: bpf.Head{TID: tid, Time: at}, CUDAStream: q}
	h.Launch(&h.threads[tid], h.Stream(&h.process, h.at(tid, q)), &l)
}

func wait(from, to uint64) *bpf.SyncRecord {
	return &bpf.SyncRecord{Head: bpf.Head{Time: from}, Duration: to - from}
}

func (h *host) wait(tid uint32, q, from, to uint64) {
	h.WaitStream(&h.threads[tid], h.Stream(&h.process, h.at(tid, q)), wait(from, to))
}

func (h *host) waitContext(tid uint32, from, to uint64) {
	h.WaitContext(&h.threads[tid], &h.process, 7, wait(from, to))
}

func (h *host) copy(tid uint32, q, from, to, bytes uint64, way schema.Direction) {
	h.Copy(h.Stream(&h.process, h.at(tid, q)), Copy{
		Work: Work{bpf.Head{TID: tid, Time: from}, q}, Duration: to - from, Bytes: bytes, Direction: way,
	})
}

func (h *host) block(tid uint32, from, to uint64) {
	c := bpf.CopyRecord{Head: bpf.Head{TID: tid, Time: from}, Duration: to - from}
	h.Block(&h.process, h.at(tid, 0), &c)
}

// found returns the pairs that a Finish found, sorted.
func (h *host) found(through uint64) string {
	h.Finish(schema.KTime(through), func() uint64 { return h.lost })
	var lines []string
	for _, g := range h.Gaps {
		lines = append(lines, fmt.Sprintf("gap %d@%d q%d %d", g.TID, g.Time, g.CUDAStream, g.NS))
	}
	for _, c := range h.Ended {
		behind := ""
		if c.Behind {
			behind = " behind"
		}
		lines = append(lines, fmt.Sprintf("copy@%d q%d %dB %d%s", c.Time, c.CUDAStream, c.Bytes, c.NS, behind))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func TestPairs(t *testing.T) {
	t.Parallel()
	const q, to, from = 100, schema.HtoD, schema.DtoH
	tests := []struct {
		name    string
		calls   func(h *host)
		want    string
		unknown uint64
	}{
		{"the first launch after a wait ends the gap", func(h *host) {
			h.wait(1, q, 10, 20)
			h.launch(1, 200, 25)
			h.launch(1, q, 30)
		}, "gap 1@25 q200 5", 0},
		{"only the last of two waits counts", func(h *host) {
			h.wait(1, q, 10, 20)
			h.wait(1, q, 21, 40)
			h.launch(1, q, 41)
		}, "gap 1@41 q100 1", 0},
		{"launches of another thread end no gap", func(h *host) {
			h.wait(1, q, 10, 20)
			h.launch(2, q, 25)
		}, "", 0},
		{"a launch read before its wait", func(h *host) {
			h.launch(1, q, 25)
			h.wait(1, q, 10, 20)
		}, "gap 1@25 q100 5", 0},
		{"a wait between launches that were read together is unknown", func(h *host) {
			h.launch(1, q, 5)
			h.launch(1, q, 25)
			h.wait(1, q, 10, 20)
			h.launch(1, q, 30)
		}, "", 1},
		{"what is later than the round comes with the next", func(h *host) {
			h.wait(1, q, 10, 20)
			h.launch(1, q, 101)
		}, "", 0},
		{"one copy", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.wait(1, q, 15, 60)
		}, "copy@10 q100 1000B 50", 0},
		{"copies of one wait share its time", func(h *host) {
			h.copy(1, q, 10, 12, 3000, to)
			h.copy(1, q, 13, 14, 1000, to)
			h.copy(1, q, 15, 16, 0, to)
			h.wait(1, q, 20, 60)
		}, "copy@10 q100 3000B 37, copy@13 q100 1000B 13, copy@15 q100 0B 0", 0},
		{"a wait for another CUDA stream", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.wait(1, 200, 15, 60)
		}, "", 0},
		{"a wait for the context covers all CUDA streams", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.copy(2, 0, 11, 13, 500, from)
			h.waitContext(1, 20, 70)
		}, "copy@10 q100 1000B 60, copy@11 q0 500B 59", 0},
		{"a wait that began before the copy returned", func(h *host) {
			h.copy(1, q, 10, 30, 1000, to)
			h.wait(2, q, 20, 60)
		}, "", 0},
		{"a kernel after the copy", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.launch(1, q, 13)
			h.wait(1, q, 20, 60)
		}, "", 0},
		{"a kernel in another CUDA stream", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.launch(1, 200, 13)
			h.wait(1, q, 20, 60)
		}, "copy@10 q100 1000B 50", 0},
		{"a kernel before the copy", func(h *host) {
			h.launch(1, q, 8)
			h.copy(1, q, 10, 12, 1000, to)
			h.wait(1, q, 20, 60)
			h.copy(1, q, 65, 66, 9, to)
			h.wait(1, q, 67, 70)
		}, "copy@10 q100 1000B 50 behind, copy@65 q100 9B 5", 0},
		{"a kernel that was read after the wait", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.wait(1, q, 20, 60)
			h.launch(2, q, 13)
		}, "", 0},
		{"two directions", func(h *host) {
			h.copy(1, q, 10, 12, 1000, to)
			h.copy(1, q, 13, 14, 1000, from)
			h.copy(1, q, 15, 16, 1000, from)
			h.wait(1, q, 20, 60)
			h.copy(1, q, 65, 66, 9, from)
			h.wait(1, q, 67, 70)
		}, "copy@65 q100 9B 5", 0},
		{"a synchronous copy in the default CUDA stream", func(h *host) {
			h.copy(1, 0, 10, 12, 1000, to)
			h.copy(1, q, 13, 14, 1000, to)
			h.block(1, 15, 30)
			h.wait(1, 0, 40, 60)
			h.wait(1, q, 61, 63)
		}, "copy@13 q100 1000B 50", 0},
		{"the default CUDA stream by its handle", func(h *host) {
			h.copy(1, 0, 10, 12, 1000, to)
			h.wait(1, 1, 40, 60)
		}, "copy@10 q0 1000B 50", 0},
		{"the default CUDA stream of each thread", func(h *host) {
			h.copy(1, 2, 10, 12, 1000, to)
			h.wait(2, 2, 40, 60)
			h.wait(1, 2, 61, 70)
		}, "copy@10 q2 1000B 60", 0},
		{"more copies than are remembered", func(h *host) {
			for i := range uint64(maxPending + 1) {
				h.copy(1, q, 10+i%2, 12, 1, to)
			}
			h.wait(1, q, 20, 60)
		}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			tt.calls(h)
			if got := h.found(100); got != tt.want || h.Unknown != tt.unknown {
				t.Errorf("found %q, unknown %d; want %q, %d", got, h.Unknown, tt.want, tt.unknown)
			}
		})
	}
}

// A pair may begin in one round and end in a later one.
func TestPairsSpanRounds(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.wait(1, 100, 10, 20)
	h.copy(1, 100, 21, 22, 10, schema.HtoD)
	h.launch(1, 200, 130)
	first, empty := h.found(100), h.found(120)
	h.waitContext(2, 140, 141)
	second, third := h.found(140), h.found(150)
	if got := []string{first, empty, second, third}; !slices.Equal(got,
		[]string{"", "", "gap 1@130 q200 110", "copy@21 q100 10B 120"}) {
		t.Errorf("found %q", got)
	}
}

// After a loss nothing is found that the lost records might change. Later pairs are found again.
func TestLossMakesPairsUnknown(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.wait(1, 100, 10, 20)
	h.wait(2, 100, 10, 20)
	h.copy(1, 100, 21, 22, 10, schema.HtoD)
	if got := h.found(30); got != "" {
		t.Errorf("found %q", got)
	}
	h.lost = 1
	h.launch(1, 100, 35)
	h.wait(1, 100, 40, 41)
	if got := h.found(50); got != "" || h.Unknown != 2 {
		t.Errorf("after the loss %q, %d unknown; want none, 2", got, h.Unknown)
	}
	h.launch(1, 200, 55) // its wait was in the round with the loss
	h.launch(2, 200, 55) // so was the doubt about this one
	h.wait(1, 100, 60, 61)
	h.copy(1, 100, 62, 63, 10, schema.HtoD)
	h.wait(1, 100, 64, 65)
	h.launch(1, 200, 66)
	if got, want := h.found(70), "copy@62 q100 10B 3, gap 1@66 q200 1"; got != want || h.Unknown != 3 {
		t.Errorf("later %q, %d unknown; want %q, 3", got, h.Unknown, want)
	}
}

// A program that calls more than Pairs remembers uses bounded memory, and pairs that may be wrong are left out.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	h := newHost()
	for i := range uint64(3 * maxNotes) {
		q := 100 + i%(4*maxStreams)
		h.wait(uint32(1+i%8), q, 4*i, 4*i+1)
		h.copy(uint32(1+i%8), q, 4*i+2, 4*i+3, 1, schema.HtoD)
	}
	if h.notes > maxNotes || len(h.process.streams) > maxStreams {
		t.Errorf("%d notes, %d CUDA streams", h.notes, len(h.process.streams))
	}
	h.found(1 << 40)
	if len(h.Ended) != 0 || h.notes != 0 || h.Unknown == 0 {
		t.Errorf("%d ended, %d notes, %d unknown", len(h.Ended), h.notes, h.Unknown)
	}
	for tid := range h.threads {
		if n := cap(h.threads[tid].notes); n > keptNotes {
			t.Errorf("thread %d keeps room for %d notes", tid, n)
		}
	}
}

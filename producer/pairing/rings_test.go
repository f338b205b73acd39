package pairing

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// call is one call of the model.
type call struct {
	kind        string
	tid         uint32
	q, from, to uint64
	ring        int
	written     uint64
}

// TestRingsInAnyOrder: threads migrate between rings, which are read one after the other. Every pair that Finish finds
// also follows from the calls in order of time. Without migration it finds all of them.
func TestRingsInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		migrate := seed%3 > 0
		calls := randomCalls(rand.New(rand.NewPCG(seed, 1)), migrate)
		want := expected(calls)
		h, got := newHost(), map[string]int{}
		end := calls[len(calls)-1].written + 1
		for first, round := 0, uint64(50); round < end+50; round += 50 {
			next := first
			for next < len(calls) && calls[next].written < round {
				next++
			}
			for ring := range 3 {
				for _, c := range calls[first:next] {
					if c.ring == ring {
						h.do(c)
					}
				}
			}
			first = next
			for _, line := range strings.Split(h.found(round), ", ") {
				got[line]++
			}
		}
		delete(got, "")
		missing := 0
		for line, n := range want {
			missing += n - got[line]
		}
		for line, n := range got {
			if n > want[line] {
				t.Fatalf("seed %d: found %q %d times, want %d", seed, line, n, want[line])
			}
		}
		if !migrate && missing > 0 || len(got) < 10 {
			t.Fatalf("seed %d: found %d, missing %d", seed, len(got), missing)
		}
	}
}

func randomCalls(r *rand.Rand, migrate bool) (calls []call) {
	now, ring := [3]uint64{}, [3]int{0, 1, 2}
	for range 600 {
		tid := r.IntN(2)
		at := max(now[0], now[1]) + 1 // one call at a time
		c := call{tid: uint32(tid), q: 100 + r.Uint64N(2), from: at, to: at + 1 + r.Uint64N(9)}
		c.kind = []string{"launch", "launch", "wait", "copy", "context"}[r.IntN(5)]
		if c.kind == "launch" {
			c.to = c.from
		}
		if migrate && r.IntN(4) == 0 {
			ring[tid] = r.IntN(3)
		}
		c.ring, c.written, now[tid] = ring[tid], c.to, c.to
		calls = append(calls, c)
	}
	if !migrate { // of one ring, since both threads use both CUDA streams
		for i := range calls {
			calls[i].ring = 0
		}
	}
	return calls
}

func (h *host) do(c call) {
	switch c.kind {
	case "launch":
		h.launch(c.tid, c.q, c.from)
	case "wait":
		h.wait(c.tid, c.q, c.from, c.to)
	case "context":
		h.waitContext(c.tid, c.from, c.to)
	case "copy":
		h.copy(c.tid, c.q, c.from, c.to, 8, schema.HtoD)
	}
}

// expected goes through the calls in order of time.
func expected(calls []call) map[string]int {
	want := map[string]int{}
	for i, c := range calls {
		switch c.kind {
		case "wait", "context":
			for _, next := range calls[i+1:] {
				if next.tid == c.tid && next.kind != "copy" {
					if next.kind == "launch" {
						want[fmt.Sprintf("gap %d@%d q%d %d", c.tid, next.from, next.q, next.from-c.to)]++
					}
					break
				}
			}
		case "copy":
			endOfCopy(calls, i, want)
		}
	}
	return want
}

// endOfCopy adds the copies that one wait ends, when calls[first] is the first of them.
func endOfCopy(calls []call, first int, want map[string]int) {
	q, behind := calls[first].q, ""
	for i := first - 1; i >= 0; i-- {
		c := calls[i]
		if c.kind == "context" || c.kind == "wait" && c.q == q {
			break
		}
		if c.kind == "copy" && c.q == q && behind == "" {
			return // not the first
		}
		if c.kind == "launch" && c.q == q {
			behind = " behind"
		}
	}
	var copies []call
	for _, c := range calls[first:] {
		switch {
		case c.kind == "launch" && c.q == q:
			return
		case c.kind == "copy" && c.q == q:
			copies = append(copies, c)
		case c.kind == "context" || c.kind == "wait" && c.q == q:
			n, before := uint64(len(copies)), uint64(0)
			for i, one := range copies {
				until := (c.to - copies[0].from) * uint64(i+1) / n
				want[fmt.Sprintf("copy@%d q%d 8B %d%s", one.from, q, until-before, behind)]++
				before = until
			}
			return
		}
	}
}

package trend

import (
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// TestFromNamesTheFirstBatchOfAWindow compares with all batches of a host, also after a snapshot.
func TestFromNamesTheFirstBatchOfAWindow(t *testing.T) {
	t.Parallel()
	const width = 100
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var w Windows
		now, newest := schema.KTime(rng.Uint64N(1e6)), uint64(0)
		var all []schema.Header
		for seq := range uint64(200) {
			h := schema.Header{Kind: schema.KindMemory, Events: 1, Seq: seq + 1, First: now}
			now += schema.KTime(rng.Uint64N(250) * rng.Uint64N(2))
			if rng.IntN(30) == 0 {
				now += schema.KTime(rng.Uint64N(100 * width))
			}
			h.Last = now
			w.Observe(width, &h, schema.KindMemory, false, seq == 0)
			w.Observe(width, &schema.Header{Kind: schema.KindHost, Seq: 1e6}, schema.KindMemory, false, false)
			all, newest = append(all, h), uint64(now/width)
			if rng.IntN(20) == 0 {
				w = savedWindows(t, &w)
			}
			at := newest - min(newest, rng.Uint64N(slots))
			want := h.Seq
			for _, b := range all {
				if uint64(b.Last/width) >= at {
					want = b.Seq
					break
				}
			}
			if got := w.From(at); got != want {
				t.Fatalf("window %d of %d: batch %d, want %d", at, newest, got, want)
			}
		}
		if old := newest - min(newest, slots-1); w.From(0) != w.From(old) {
			t.Errorf("an old window begins with batch %d, want %d", w.From(0), w.From(old))
		}
		first := schema.Header{Kind: schema.KindMemory, Events: 1, Seq: 1, First: now + 1, Last: now + 900, Run: 9}
		if w.Observe(width, &first, schema.KindMemory, false, true); w.From(0) != 1 || w.From(newest) != 1 {
			t.Errorf("after a restart, windows begin with the batches %d and %d", w.From(0), w.From(newest))
		}
	}
}

func savedWindows(t *testing.T, w *Windows) (again Windows) {
	t.Helper()
	var out snapshot.Writer
	w.Code(&snapshot.Codec{Writer: &out})
	in := snapshot.NewReader(out.Data())
	if again.Code(&snapshot.Codec{Reader: in}); again != *w || in.Err() != nil || in.Room(1) > 0 {
		t.Fatalf("got %+v, want %+v, %v", again, *w, in.Err())
	}
	return again
}

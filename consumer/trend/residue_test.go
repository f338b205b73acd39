package trend

import (
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestSurvivorsProveGrowth: each window leaves memory behind. The level falls in the last window, below that of the
// windows before, so floors show no growth.
func TestSurvivorsProveGrowth(t *testing.T) {
	t.Parallel()
	const width, windows = 100, 34
	moment := func(w, at uint64) schema.KTime { return schema.KTime(width*w + at) }
	for _, row := range []struct {
		name string
		left func(w uint64) uint64 // bytes that window w leaves
		load func(w uint64) uint64 // bytes in use beside these
		want State
	}{
		{"equal amounts", func(uint64) uint64 { return 1000 }, func(uint64) uint64 { return 1e6 }, Growing},
		{"equal amounts, and models", func(w uint64) uint64 { return 1000 + w/11*(w%11/10)*1e5 },
			func(uint64) uint64 { return 1e6 }, Growing},
		{"less the older they are", func(w uint64) uint64 { return 200 + 60*w },
			func(w uint64) uint64 { return 1e6 + 1000*w }, Steady},
		{"every second window", func(w uint64) uint64 { return w % 2 * 2000 },
			func(uint64) uint64 { return 1e6 }, Steady},
		{"nothing since a while", func(w uint64) uint64 { return 1000 - 1000*(w/28) },
			func(w uint64) uint64 { return 1e6 + 1000*w }, Steady},
		{"as much as they replace", func(uint64) uint64 { return 1000 },
			func(w uint64) uint64 { return 1e6 - 1000*w }, Steady},
	} {
		s := NewSeries(width, 0)
		before := uint64(0) // load of the window before
		v, gaps := Verdict{}, Gaps{}
		for w := range uint64(windows) {
			load := row.load(w)
			if w == windows-1 {
				load = 0
			}
			s.Add(moment(w, 1), load)
			s.Remove(moment(w, 2), moment(w-min(w, 1), 1), before)
			s.Add(moment(w, 3), row.left(w))
			before = load
		}
		for _, with := range []bool{true, false} {
			want := row.want
			if !with {
				want = Steady
			}
			v = s.Judge(Verdict{}, windows, &gaps, Criteria{Suspect: 1, Residue: with})
			if v.State != want {
				t.Errorf("%s: %s, want %s: %+v", row.name, v.State, want, v)
			}
			if v.State == Growing && v.PerHour != 1000*3600e9/width {
				t.Errorf("%s: %d bytes per hour", row.name, v.PerHour)
			}
		}
	}
}

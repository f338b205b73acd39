package trend

import (
	"testing"

	"github.com/gputap/gputap/schema"
)

const mib = 1 << 20

// judged returns the number of windows in each state. In each window act changes the series, at a time of the window.
func judged(act func(s *Series, w uint64, at schema.KTime)) (states [numStates]int) {
	const width = 100
	s, last, gaps := NewSeries(width, 0), Verdict{}, Gaps{}
	s.Add(1, 1024*mib)
	for w := range uint64(400) {
		act(s, w, schema.KTime(w*width+50))
		last = s.Judge(last, w+1, &gaps, Criteria{Suspect: 256 * mib})
		states[last.State]++
	}
	return states
}

// TestRareStepsAreNotFound: docs/detection.md names this limit. Most windows between the steps show no growth.
func TestRareStepsAreNotFound(t *testing.T) {
	t.Parallel()
	for every := uint64(2); every <= 20; every++ {
		n := judged(func(s *Series, w uint64, at schema.KTime) {
			if w%every == 2%every {
				s.Add(at, 310*mib)
			}
		})
		if found := every <= 7; n[Suspect] > 300 != found || !found && n[Growing]+n[Suspect] > 0 {
			t.Errorf("a step in every %d windows: %d windows are growing, %d suspect", every, n[Growing], n[Suspect])
		}
	}
}

// TestRareCollectionsHideLeaks: docs/detection.md names this limit. Each window leaks 20 MiB, and makes garbage that is
// freed in every so many windows.
func TestRareCollectionsHideLeaks(t *testing.T) {
	t.Parallel()
	for every := uint64(2); every <= 20; every++ {
		var garbage []schema.KTime // when it was allocated
		n := judged(func(s *Series, w uint64, at schema.KTime) {
			s.Add(at, 20*mib)
			s.Add(at, 400*mib)
			garbage = append(garbage, at)
			if w%every == every-1 {
				for _, since := range garbage {
					s.Remove(at+10, since, 400*mib)
				}
				garbage = nil
			}
		})
		if every <= 6 && n[Suspect] < 300 || every >= 8 && (n[Suspect] > 0 || n[Steady] < 300) {
			t.Errorf("a collection in every %d windows: %d windows are growing, %d suspect", every, n[Growing],
				n[Suspect])
		}
	}
}

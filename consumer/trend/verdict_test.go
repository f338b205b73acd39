package trend

import (
	"testing"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// worst returns the worst state of a series that is quiet, then grows for some windows, then stays as it is.
func worst(quiet, ramp uint64) (state State) {
	const width, step = 100, 1000
	s, last, gaps := NewSeries(width, 0), Verdict{}, Gaps{}
	s.Add(1, 1<<40)
	for w := range quiet + ramp + Kept {
		if w >= quiet && w < quiet+ramp {
			s.Add(schema.KTime(w*width+50), step)
		}
		last = s.Judge(last, w+1, &gaps, Criteria{Suspect: step})
		if last.State.Grows() {
			state = max(state, last.State)
		}
	}
	if last.State != Steady {
		return Unknown // it must end as steady
	}
	return state
}

// TestShortRampsAreNoLeaks: docs/detection.md promises these lengths.
func TestShortRampsAreNoLeaks(t *testing.T) {
	t.Parallel()
	for _, quiet := range []uint64{0, 5, 20, 40} {
		for ramp := range uint64(40) {
			got := worst(quiet, ramp)
			if ramp <= 13 && got != Warming || ramp >= 17 && !got.Grows() || ramp < 26 && got == Suspect ||
				ramp >= 30 && got != Suspect {
				t.Errorf("%d quiet windows, then %d that grow: %s", quiet, ramp, got)
			}
		}
	}
}

// TestEndedRampsAreSteadyDespiteSmallRises: a cache that has filled, or a leak that was stopped, no longer grows, even
// if each later window adds some bytes. A leak that slows down to a fifth goes on.
func TestEndedRampsAreSteadyDespiteSmallRises(t *testing.T) {
	t.Parallel()
	const width, ramp, step = 100, 32, 1000
	for rise, want := range map[uint64]State{0: Steady, 1: Steady, 100: Steady, 200: Suspect, 500: Suspect} {
		s, last, gaps := NewSeries(width, 0), Verdict{}, Gaps{}
		s.Add(1, 1<<40)
		for w := range uint64(ramp + 12) {
			more := uint64(step)
			if w >= ramp {
				more = rise
			}
			s.Add(schema.KTime(w*width+50), more)
			last = s.Judge(last, w+1, &gaps, Criteria{Suspect: ramp * step / 2})
			if w == ramp-1 && last.State != Suspect {
				t.Fatalf("%s at the end of the ramp", last.State)
			}
		}
		if last.State != want {
			t.Errorf("%s while each window adds %d of the %d bytes before, want %s", last.State, rise, step, want)
		}
	}
}

func TestVerdictsAreSavedAndRestored(t *testing.T) {
	t.Parallel()
	for state := range numStates {
		v := Verdict{State: state, Windows: 29, Excluded: 1, Newest: 40, PerHour: 1 << 40, Rising: 99, Onset: 3,
			Growth: 1 << 50, OldUntil: 33, Hidden: true}
		var w snapshot.Writer
		v.Code(&snapshot.Codec{Writer: &w})
		var got Verdict
		in := snapshot.NewReader(w.Data())
		if got.Code(&snapshot.Codec{Reader: in}); got != v || in.Err() != nil || in.Room(1) > 0 {
			t.Errorf("got %+v, want %+v, %v", got, v, in.Err())
		}
	}
	var w snapshot.Writer
	w.String("odd")
	var got Verdict
	in := snapshot.NewReader(w.Data())
	if got.Code(&snapshot.Codec{Reader: in}); in.Err() == nil || got.State.String() != "unknown" {
		t.Errorf("an odd state is %s, %v", got.State, in.Err())
	}
}

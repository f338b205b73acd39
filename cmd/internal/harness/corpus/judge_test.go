package corpus

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/trend"
)

// notFound are leaks that begin so late that the recording ends first: leak_late leaks in 18 windows, and a verdict
// needs 20.
var notFound = []string{"leak_late"}

// TestJudge holds the verdicts and the alerts of all rules to the labels.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, half := range []string{"first", "second", "third"} {
		t.Run(half, func(t *testing.T) {
			t.Parallel()
			all, err := Judge("testdata/" + half)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range all {
				t.Logf("%-16s %-8s %-8s leaked %5d MiB  growing after %3.0f  suspect after %3.0f  %s  %s", f.Name,
					f.Label.Label, f.State, f.LeakedBytes>>20, f.GrowingAfter, f.SuspectAfter,
					strings.Join(slices.Sorted(maps.Keys(f.Alerts)), ","), strings.Join(f.Grave, "; "))
				found := f.State.Grows()
				switch {
				case f.Label.Label == "leak" && found == slices.Contains(notFound, f.Name):
					t.Errorf("%s leaks: %s", f.Name, f.State)
				case f.Label.Label == "innocent" && (f.State == trend.Suspect || len(f.Grave) > 0):
					t.Errorf("%s is innocent: %s, %q", f.Name, f.Why, f.Grave)
				case (f.State == trend.Suspect) != (f.Alerts["leak_growth"] > 0):
					t.Errorf("%s is %s and raised %v", f.Name, f.State, f.Alerts)
				}
			}
		})
	}
}

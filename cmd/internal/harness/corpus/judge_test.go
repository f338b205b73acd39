package corpus

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/trend"
)

// notFound are positives of which the docs say why no verdict and no rule finds them.
var notFound = []string{
	"odd_size_pairs",  // a second allocation of the size follows, as when a cache is built
	"odd_size_square", // the same
	"odd_rate_tiles",  // launches as many more kernels as it makes allocations: more work
	"odd_rate_empty",  // stretched, it makes 29 allocations a second; the rule needs 100
	"odd_exit_solver", // frees nothing in order when it ends, as most programs
	"odd_exit_cache",  // the same
	"odd_exit_error",  // the same
	"odd_exit_grown",  // leaves less than 0.5 % of the GPU
}

// finds reports whether a finding has the state or the alert that its label asks for, and nothing graver than asked
// for.
func finds(t *testing.T, f *Finding) bool {
	t.Helper()
	switch f.Label.Label {
	case "leak":
		return f.State.Grows()
	case "odd":
		for _, rule := range f.Expect {
			if f.Alerts[rule] == 0 {
				return false
			}
			if rule == "straggler" && !strings.Contains(strings.Join(f.Grave, " "), "straggler: Rank 2 of ") {
				t.Errorf("%s slows rank 2 down: %q", f.Name, f.Grave)
			}
		}
	}
	return true
}

// score counts the programs that a rule must find, those that it finds, and the others about which it raises an alert.
type score struct{ positives, found, wrong int }

func (s *score) add(f *Finding, rule string) {
	positive := slices.Contains(f.Expect, rule) || rule == "leak_growth" && f.Label.Label == "leak"
	raised := f.Alerts[rule] > 0 || rule == "leak_growth" && f.Label.Label == "leak" && f.State.Grows()
	switch {
	case positive && raised:
		s.positives, s.found = s.positives+1, s.found+1
	case positive:
		s.positives++
	case raised:
		s.wrong++
	}
}

var recordings = flag.String("recordings", "", "directory that programs/run.py wrote, for TestJudgeRecordings")

// TestJudgeRecordings prints the findings of recordings that are not in the tree. It holds them to the labels of
// their programs: no innocent one is suspect or raises an alert above info.
func TestJudgeRecordings(t *testing.T) {
	if *recordings == "" {
		t.Skip("no -recordings")
	}
	all, err := Judge(*recordings)
	if err != nil {
		t.Fatal(err)
	}
	found, innocent, grow := map[string]int{}, 0, 0
	for _, f := range all {
		log(t, &f)
		found[f.Label.Label]++
		switch {
		case f.Label.Label == "leak" && f.State.Grows():
			grow++
		case f.Label.Label == "innocent" && (f.State == trend.Suspect || len(f.Grave) > 0):
			t.Errorf("%s is innocent: %s, %q", f.Name, f.Why, f.Grave)
		case f.Label.Label == "innocent" && f.State.Grows():
			innocent++
		}
	}
	t.Logf("leaks found %d of %d; innocent and growing for a time %d of %d", grow, found["leak"], innocent,
		found["innocent"])
}

func log(t *testing.T, f *Finding) {
	t.Helper()
	t.Logf("%-16s %-8s %-8s leaked %5d MiB  growing after %3.0f  suspect after %3.0f  %s  %s", f.Name,
		f.Label.Label, f.State, f.LeakedBytes>>20, f.GrowingAfter, f.SuspectAfter,
		strings.Join(slices.Sorted(maps.Keys(f.Alerts)), ","), strings.Join(f.Grave, "; "))
}

// TestJudge holds the verdicts and the alerts of all rules, each in mode alert, to the labels.
func TestJudge(t *testing.T) {
	t.Parallel()
	rules := []string{"leak_growth", "unfreed_at_exit", "alloc_size", "alloc_rate", "oom", "launch_collapse",
		"copy_regression", "pageable_copies", "straggler"}
	scores := make([]score, len(rules))
	for _, part := range []string{"first", "second", "third"} {
		all, err := Judge("testdata/" + part)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			log(t, &f)
			if found := finds(t, &f); found == slices.Contains(notFound, f.Name) {
				t.Errorf("%s is found: %v (%s, %v)", f.Name, found, f.State, f.Alerts)
			}
			if f.Label.Label == "innocent" && (f.State == trend.Suspect || len(f.Grave) > 0) {
				t.Errorf("%s is innocent: %s, %q", f.Name, f.Why, f.Grave)
			}
			if (f.State == trend.Suspect) != (f.Alerts["leak_growth"] > 0) {
				t.Errorf("%s is %s and raised %v", f.Name, f.State, f.Alerts)
			}
			for i, rule := range rules {
				scores[i].add(&f, rule)
			}
		}
	}
	page, err := os.ReadFile("../../../../docs/detection.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, rule := range rules {
		row := fmt.Sprintf("| `%s` | %d of %d | %d |", rule, scores[i].found, scores[i].positives, scores[i].wrong)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/detection.md has no %s", row)
		}
	}
}

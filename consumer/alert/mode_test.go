package alert

import "testing"

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, rule, name string
		want                bool
	}{
		{"train", "oom", "train", true}, {"train", "oom", "trainer", false}, {"train*", "oom", "trainer", true},
		{"oom=train", "oom", "train", true}, {"oom=train", "alloc_size", "train", false},
		{"other=train", "oom", "train", false}, {"other=train", "oom", "other=train", true},
		{"*", "oom", "", false}, {"slurm:*", "oom", "slurm:17", true}, {"[", "oom", "[", false},
		{"pod:*", "oom", "pod:a/b", false},
	} {
		if got := matches([]string{"x", test.pattern}, test.rule, test.name); got != test.want {
			t.Errorf("%q for %s and %q: %t", test.pattern, test.rule, test.name, got)
		}
	}
}

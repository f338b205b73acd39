package backtest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/alert"
)

// Counts are the alerts and the suppressed findings of a rule with one configuration.
type Counts struct {
	Alerts     map[string]uint64 `json:"alerts"`     // by severity
	Suppressed map[string]uint64 `json:"suppressed"` // by reason
}

// Rule is one rule with both configurations.
type Rule struct {
	Rule    string `json:"rule"`
	Current Counts `json:"current"`
	Changed Counts `json:"changed"`
}

// Result compares two configurations. Alerts have the form of gputap get alerts.
type Result struct {
	Rules       []Rule        `json:"rules"` // with any finding, by name
	OnlyCurrent []alert.Alert `json:"only_current"`
	OnlyChanged []alert.Alert `json:"only_changed"`
	Complete    bool          `json:"complete"`
	Missing     []string      `json:"missing"`
}

// compare returns the result of two variants that have read the same messages.
func compare(current, changed *variant, missing []string) *Result {
	rules := map[string]*Rule{}
	current.fill(rules, func(r *Rule) *Counts { return &r.Current })
	changed.fill(rules, func(r *Rule) *Counts { return &r.Changed })
	result := &Result{Rules: []Rule{}, Complete: len(missing) == 0, Missing: append([]string{}, missing...)}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		result.Rules = append(result.Rules, *rules[name])
	}
	was, is := current.incidents(), changed.incidents()
	result.OnlyCurrent, result.OnlyChanged = unmatched(was, is), unmatched(is, was)
	return result
}

// fill adds the counts of a variant to the rules.
func (v *variant) fill(rules map[string]*Rule, side func(*Rule) *Counts) {
	of := func(name string) *Counts {
		if rules[name] == nil {
			none := func() Counts { return Counts{map[string]uint64{}, map[string]uint64{}} }
			rules[name] = &Rule{name, none(), none()}
		}
		return side(rules[name])
	}
	for _, i := range v.raised {
		of(i.Rule).Alerts[i.Severity]++
	}
	for f, n := range v.suppressed() {
		if n -= v.before[f]; n > 0 {
			of(f.rule).Suppressed[f.reason] += n
		}
	}
}

// unmatched returns the alerts of a list that no alert of the other list matches. An alert matches one of the same
// rule, process and GPU that fired at the same time, or until one of them cleared.
func unmatched(list, other []*Incident) []alert.Alert {
	only := []alert.Alert{}
	for _, i := range list {
		if !slices.ContainsFunc(other, i.matches) {
			a := i.Alert
			a.State, a.Time = alert.Firing, i.Fired
			only = append(only, a)
		}
	}
	return only
}

func (i *Incident) matches(to *Incident) bool {
	return i.subject() == to.subject() && (i.Cleared.IsZero() || !to.Fired.After(i.Cleared)) &&
		(to.Cleared.IsZero() || !i.Fired.After(to.Cleared))
}

// subject names the rule, and the process or job, of an alert.
type subject struct {
	rule, cluster, host, job, gpu string
	pid                           uint32
	start                         int64
}

func (i *Incident) subject() subject {
	return subject{i.Rule, i.Cluster, i.Host, i.Job, i.GPU, i.PID, i.Start.UnixNano()}
}

// ordered returns the keys of counts, the largest count first.
func ordered(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

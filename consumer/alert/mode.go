package alert

import (
	"path"
	"slices"
	"strings"

	"github.com/gputap/gputap/consumer/process"
)

// Mode says what a rule does with a finding.
type Mode string

// Modes. The empty Mode of a rule is its default.
const (
	ModeOff     Mode = "off"     // the rule does not run
	ModeObserve Mode = "observe" // alerts have severity info
	ModeAlert   Mode = "alert"
)

// Exclude lists processes about which no rule raises an alert: patterns of names of commands, users and jobs. An entry
// is a pattern of path.Match, or RULE=PATTERN for one rule.
type Exclude struct{ Comm, User, Job []string }

// Excludes reports whether a rule raises no alert about a process.
func (e *Exclude) Excludes(rule string, i *process.Info) bool {
	return matches(e.Comm, rule, i.Comm) || matches(e.User, rule, i.User) || matches(e.Job, rule, i.Job)
}

// matches reports whether a name matches one of the patterns. The empty name is unknown and matches none.
func matches(patterns []string, rule, name string) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		if of, rest, ok := strings.Cut(pattern, "="); ok && slices.Contains(aboutProcesses, of) {
			if of != rule {
				return false
			}
			pattern = rest
		}
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	})
}

// aboutProcesses are the rules that raise alerts about processes.
var aboutProcesses = []string{
	"alloc_size", "oom", "oom_recovered", "alloc_rate", "launch_collapse", "copy_regression", "pageable_copies",
	"leak_growth", "unfreed_at_exit", "straggler",
}

package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
)

var jobs = resource[answer.FleetJob]{
	name: "jobs", short: "Jobs, and the rank that holds up the others", ask: (*answer.Fleet).Jobs,
	examples: "  gputap get jobs --sort waiting\n  gputap get jobs --job 'slurm:*' -o wide --watch=10s",
	columns: []column[answer.FleetJob]{
		{clusterTitle, true, func(j *answer.FleetJob, _ time.Time) any { return j.Cluster }},
		{"JOB", false, func(j *answer.FleetJob, _ time.Time) any { return j.Job }},
		{"RANKS", false, func(j *answer.FleetJob, _ time.Time) any { return seen(j) }},
		{"HOSTS", false, func(j *answer.FleetJob, _ time.Time) any { return len(j.Hosts) }},
		{"USER", false, func(j *answer.FleetJob, _ time.Time) any { return cmp.Or(j.User, fmt.Sprint(j.UID)) }},
		{"STATE", false, func(j *answer.FleetJob, _ time.Time) any { return j.State }},
		{"WAITING", false, func(j *answer.FleetJob, _ time.Time) any { return percent(j.Waiting) }},
		{"SLOW", false, func(j *answer.FleetJob, _ time.Time) any { return slow(j) }},
		{"MISSING", true, func(j *answer.FleetJob, _ time.Time) any { return numbers(j.Missing) }},
	},
	orders: []order[answer.FleetJob]{
		{"job", least(func(j *answer.FleetJob) string { return j.Job })},
		{"waiting", mostKnown(func(j *answer.FleetJob) *float64 { return j.Waiting })},
		{"ranks", most(func(j *answer.FleetJob) uint64 { return uint64(j.Ranks) })},
	},
	tie: func(a, b *answer.FleetJob) int { return named(a.Cluster, a.Job, b.Cluster, b.Job) },
}

func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100**share)
}

// seen returns the ranks that run, of those that the job has.
func seen(j *answer.FleetJob) string {
	if j.Ranks == 0 {
		return fmt.Sprint(j.Seen)
	}
	return fmt.Sprintf("%d/%d", j.Seen, j.Ranks)
}

// slow names the slow ranks with their hosts.
func slow(j *answer.FleetJob) string {
	var list []string
	for _, rank := range j.Slow {
		for i := range j.Processes {
			if p := &j.Processes[i]; p.Rank == rank {
				list = append(list, fmt.Sprintf("rank %d on %s", rank, p.Host))
			}
		}
	}
	return cmp.Or(strings.Join(list, ", "), "-")
}

// numbers lists at most eight numbers.
func numbers(list []uint32) string {
	const most = 8
	var words []string
	for _, n := range list[:min(most, len(list))] {
		words = append(words, fmt.Sprint(n))
	}
	if len(list) > most {
		words = append(words, "…")
	}
	return cmp.Or(strings.Join(words, ","), "-")
}

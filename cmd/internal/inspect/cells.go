package inspect

import (
	"cmp"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
)

// age formats the time that has passed, in its largest unit: 4s, 12m, 3h, 5d. It is "-" for a time that is not known.
func age(since *time.Time, now time.Time) string {
	if since == nil || since.IsZero() {
		return "-"
	}
	return app.Age(now.Sub(*since))
}

// amount is a number of bytes; "-" if it is not known.
func amount(bytes *uint64) any {
	if bytes == nil {
		return "-"
	}
	return app.Amount(*bytes)
}

// moment returns the zero time for a time that is not known.
func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// named orders by cluster, then host.
func named(clusterA, hostA, clusterB, hostB string) int {
	return cmp.Or(cmp.Compare(clusterA, clusterB), cmp.Compare(hostA, hostB))
}

func ofWho(a, b *answer.Who) int {
	return cmp.Or(named(a.Cluster, a.Host, b.Cluster, b.Host), cmp.Compare(a.PID, b.PID), a.Start.Compare(b.Start))
}

// orDash is a PID, or "-" where an alert is about a host.
func orDash(pid uint32) any {
	if pid == 0 {
		return "-"
	}
	return pid
}

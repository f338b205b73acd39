package inspect

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
)

// age formats the time that has passed, in its largest unit: 4s, 12m, 3h, 5d. It is "-" for a time that is not known.
func age(since *time.Time, now time.Time) string {
	if since == nil || since.IsZero() {
		return "-"
	}
	switch d := max(0, now.Sub(*since)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// user is the name that the host knows, or the uid.
func user(name string, uid uint32) string { return cmp.Or(name, strconv.FormatUint(uint64(uid), 10)) }

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

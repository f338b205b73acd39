package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What happens to a shard. All but a kill are messages of a consumer's log.
const (
	killed   = "killed" // its owner
	acquired = "shard acquired"
	folded   = "first batch folded"
	released = "shard released"
	lost     = "lease lost" // to another instance
)

var shardLine = regexp.MustCompile(`(?m)^time=(\S+) level=\S+ msg="?(` +
	strings.Join([]string{acquired, folded, released, lost}, "|") + `).* consumer=(\S+) .*shard=(\d+)`)

// shardEvent is a line of a consumer's log about a shard, or a kill of the consumer.
type shardEvent struct {
	process, shard string // shard: fold and number; empty for a kill
	what           string
	at             time.Time
}

// shardEvents returns the events of all consumers in order of time.
func (f *fleet) shardEvents() ([]shardEvent, error) {
	list := slices.Clone(f.kills)
	for _, p := range f.consumers {
		text, err := os.ReadFile(p.Log())
		if err != nil {
			return nil, err
		}
		for _, m := range shardLine.FindAllStringSubmatch(string(text), -1) {
			at, err := time.Parse(time.RFC3339Nano, m[1])
			if err != nil {
				return nil, err
			}
			list = append(list, shardEvent{p.Name, m[3] + " " + m[4], m[2], at})
		}
	}
	slices.SortStableFunc(list, func(a, b shardEvent) int { return a.at.Compare(b.at) })
	return list, nil
}

// takeovers are the times from the kill of a shard's owner until a batch of the shard is folded again, whichever
// instances are killed meanwhile.
type takeovers struct {
	took       []time.Duration // sorted
	unfinished int
}

func takeoversOf(events []shardEvent) (t takeovers) {
	owner, killedAt := map[string]string{}, map[string]time.Time{} // by shard
	for _, e := range events {
		switch e.what {
		case acquired:
			owner[e.shard] = e.process
		case released, lost:
			if owner[e.shard] == e.process {
				delete(owner, e.shard)
			}
		case folded:
			if at, down := killedAt[e.shard]; down {
				t.took = append(t.took, e.at.Sub(at))
				delete(killedAt, e.shard)
			}
		case killed:
			for shard, process := range owner {
				if process != e.process {
					continue
				}
				delete(owner, shard)
				if killedAt[shard].IsZero() {
					killedAt[shard] = e.at
				}
			}
		}
	}
	slices.Sort(t.took)
	t.unfinished = len(killedAt)
	return t
}

func (t takeovers) String() string {
	n := len(t.took)
	if n == 0 {
		return fmt.Sprintf("no takeover; %d unfinished", t.unfinished)
	}
	p99 := ""
	if n >= 100 { // the 99th percentile of fewer is the maximum
		p99 = fmt.Sprintf("p99 %.1f s, ", t.took[(n*99+99)/100-1].Seconds())
	}
	return fmt.Sprintf("median %.1f s, %smax %.1f s (n=%d); %d unfinished",
		t.took[(n-1)/2].Seconds(), p99, t.took[n-1].Seconds(), n, t.unfinished)
}

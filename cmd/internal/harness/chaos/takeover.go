package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Messages of a consumer's log about a shard.
const (
	logAcquired = "shard acquired" // with its state
	logFolded   = "first batch folded"
	logReleased = "shard released"
	logLost     = "lease lost" // to another instance
)

const killed = "killed" // is no message: a kill of the shard's owner

var shardLine = regexp.MustCompile(`^time=(\S+) level=\S+ msg="?(` +
	strings.Join([]string{logAcquired, logFolded, logReleased, logLost}, "|") + `).* consumer=(\S+) .*shard=(\d+)`)

// kill is one SIGKILL of a consumer.
type kill struct {
	process string
	at      time.Time
}

// shardEvent is a line of a consumer's log about a shard, or a kill.
type shardEvent struct {
	process, shard string // shard: fold and number; empty for a kill
	what           string
	at             time.Time
}

// shardEvents returns the events of all consumers in order of time.
func (f *fleet) shardEvents() (list []shardEvent) {
	for _, p := range f.consumers {
		file, err := os.Open(p.Log())
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			m := shardLine.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
				list = append(list, shardEvent{p.Name, m[3] + " " + m[4], m[2], at})
			}
		}
		_ = file.Close()
	}
	for _, k := range f.kills {
		list = append(list, shardEvent{process: k.process, what: killed, at: k.at})
	}
	slices.SortStableFunc(list, func(a, b shardEvent) int { return a.at.Compare(b.at) })
	return list
}

// takeovers are the times from the kill of a shard's owner until a batch of the shard is folded again, whichever
// instances are killed meanwhile.
type takeovers struct {
	took       []time.Duration // sorted
	unfinished int
}

func (f *fleet) takeovers() (t takeovers) {
	owner, killedAt := map[string]string{}, map[string]time.Time{} // by shard
	for _, e := range f.shardEvents() {
		switch e.what {
		case logAcquired:
			owner[e.shard] = e.process
		case logReleased, logLost:
			if owner[e.shard] == e.process {
				delete(owner, e.shard)
			}
		case logFolded:
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

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

// kill is one kill -9 of a consumer.
type kill struct {
	name string
	at   time.Time
}

// turn is one line of a consumer's log about a shard.
type turn struct {
	name, shard string // process; fold and number
	what        string
	at          time.Time
}

const (
	taken  = "shard is owned"    // with its state
	folded = "folding has begun" // its first batch since then is folded
	given  = "shard is given"    // away
	lost   = "lease was lost"    // to another
	killed = "killed"            // a kill of its owner
)

var turnLine = regexp.MustCompile(`^time=(\S+) level=\S+ msg="(` + strings.Join([]string{taken, folded, given, lost}, "|") + `).* consumer=(\S+) .*shard=(\d+)`)

func (f *fleet) turns() (list []turn) {
	for _, p := range f.consumers {
		file, err := os.Open(p.Log())
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			m := turnLine.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
				list = append(list, turn{p.Name, m[3] + " " + m[4], m[2], at})
			}
		}
		_ = file.Close()
	}
	for _, k := range f.kills {
		list = append(list, turn{name: k.name, what: killed, at: k.at})
	}
	slices.SortStableFunc(list, func(a, b turn) int { return a.at.Compare(b.at) })
	return list
}

// outages are what the kills did to shards: one begins with the kill of its shard's owner and ends when a batch of it is
// folded again, whoever is killed meanwhile.
type outages struct {
	took  []time.Duration // from the shortest to the longest
	never int             // that did not end
}

func (f *fleet) outages() (o outages) {
	owner, began := map[string]string{}, map[string]time.Time{} // by shard
	for _, t := range f.turns() {
		switch t.what {
		case taken:
			owner[t.shard] = t.name
		case given, lost:
			if owner[t.shard] == t.name {
				delete(owner, t.shard)
			}
		case folded:
			if at, out := began[t.shard]; out {
				o.took = append(o.took, t.at.Sub(at))
				delete(began, t.shard)
			}
		case killed:
			for shard, name := range owner {
				if name != t.name {
					continue
				}
				delete(owner, shard)
				if began[shard].IsZero() {
					began[shard] = t.at
				}
			}
		}
	}
	slices.Sort(o.took)
	o.never = len(began)
	return o
}

func (o outages) String() string {
	if len(o.took) == 0 {
		return fmt.Sprintf("no shard was folded again; %d were not", o.never)
	}
	most := fmt.Sprintf("the longest %.1f s", o.took[len(o.took)-1].Seconds())
	if n := len(o.took); n >= 100 { // of fewer the 99th percentile is the longest
		most = fmt.Sprintf("99th percentile %.1f s, %s", o.took[(n*99+99)/100-1].Seconds(), most)
	}
	return fmt.Sprintf("median %.1f s, %s, of %d; %d were not folded again", o.took[(len(o.took)-1)/2].Seconds(), most, len(o.took), o.never)
}

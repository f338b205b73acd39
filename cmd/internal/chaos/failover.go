package main

import (
	"bufio"
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

// taking is one line of a consumer's log: it has a shard with its state, and folds.
type taking struct {
	name, fold, shard string
	at                time.Time
}

var takingLine = regexp.MustCompile(`^time=(\S+) level=INFO msg="shard is owned" consumer=(\S+) .*shard=(\d+)`)

func (f *fleet) takings() (list []taking) {
	for _, p := range f.consumers {
		file, err := os.Open(p.Log())
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			m := takingLine.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
				list = append(list, taking{p.Name, m[2], m[3], at})
			}
		}
		_ = file.Close()
	}
	slices.SortFunc(list, func(a, b taking) int { return a.at.Compare(b.at) })
	return list
}

// failovers are the times from a kill to when another process, or the same one started anew, folded each of its shards.
func (f *fleet) failovers() (took []time.Duration) {
	takings := f.takings()
	for _, k := range f.kills {
		fold, _, _ := strings.Cut(k.name, "-")
		owner := map[string]string{} // at the kill
		for _, t := range takings {
			if t.fold != fold {
				continue
			}
			if t.at.Before(k.at) {
				owner[t.shard] = t.name
				continue
			}
			if owner[t.shard] == k.name {
				took = append(took, t.at.Sub(k.at))
				delete(owner, t.shard)
			}
		}
	}
	slices.Sort(took)
	return took
}

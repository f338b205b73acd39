package naive

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// Fold is the shards of a fold that instances run.
type Fold struct {
	Name    string
	Kinds   []schema.Kind
	Refuses func(*schema.Header) bool // batches that the fold cannot use; nil: none
	Shards  []Shard
}

// Shard is a shard of a fold.
type Shard struct {
	Number     int
	Instance   string
	Applied    uint64    // sequence of the last message that was read
	Checkpoint time.Time // zero: the state is not saved
}

// Status returns what gputap status prints at a time about a fleet with so many shards. The alerts are those of the
// last answer of all folds. leak is the first fold, and has read everything.
func (l *Log) Status(now time.Time, shards int, folds []Fold, alerts []Object) Object {
	known, silent := l.only(ofLeak).Hosts(), []any{}
	slices.SortStableFunc(known, func(a, b any) int { return heardOf(a).Compare(heardOf(b)) })
	for _, h := range known {
		if h := h.(Object); now.Sub(heardOf(h)) > 30*time.Second {
			silent = append(silent, Object{"cluster": h["cluster"], "host": h["host"], "heard": h["heard"]})
		}
	}
	lost := l.lost()
	delete(lost, "invalid_batches")
	list, problems := []any{}, []string{}
	if len(silent) > 0 {
		problems = append(problems, fmt.Sprintf("%d of %d hosts are silent", len(silent), len(known)))
	}
	for i := range folds {
		one, of := l.fold(now, shards, &folds[i])
		list, problems = append(list, one), append(problems, of...)
	}
	recent, newest := 0, Object(nil)
	for _, a := range alerts {
		if at := a["time"].(time.Time); now.Sub(at) < time.Hour {
			recent++
		}
		if newest == nil || a["time"].(time.Time).After(newest["time"].(time.Time)) {
			newest = a
		}
	}
	return Object{"time": now, "healthy": len(problems) == 0, "problems": problems, "lost": lost, "folds": list,
		"hosts":  Object{"known": len(known), "heard": len(known) - len(silent), "silent": silent},
		"alerts": Object{"recent": recent, "newest": newest}}
}

func heardOf(host any) time.Time { return host.(Object)["heard"].(time.Time) }

// fold returns how a fold is doing, and its problems.
func (l *Log) fold(now time.Time, shards int, f *Fold) (one Object, problems []string) {
	missing, lagging, notRunning, instances := []int{}, []int{}, []string{}, map[string]bool{}
	lag, invalid, oldest := uint64(0), 0, time.Time{}
	for number := range shards {
		i := slices.IndexFunc(f.Shards, func(s Shard) bool { return s.Number == number })
		if i < 0 {
			missing = append(missing, number)
			continue
		}
		s := f.Shards[i]
		instances[s.Instance] = true
		unread := uint64(0)
		for j := range l.messages {
			switch m := &l.messages[j]; {
			case m.Shard != number:
			case m.Sequence > s.Applied:
				unread++
			case f.wants(m.Subject) && (!m.valid || !m.again && f.Refuses != nil && f.Refuses(&m.header)):
				invalid++
			}
		}
		if lag += unread; unread >= 1000 {
			lagging = append(lagging, number)
		}
		if !s.Checkpoint.IsZero() && (oldest.IsZero() || s.Checkpoint.Before(oldest)) {
			oldest = s.Checkpoint
		}
	}
	one = Object{"fold": f.Name, "shards": shards, "answered": shards - len(missing), "missing": missing,
		"instances": len(instances), "lag": lag, "lagging": lagging, "invalid": invalid, "checkpoint": nil}
	if !oldest.IsZero() {
		one["checkpoint"] = oldest
	}
	if len(f.Shards) == 0 {
		one["not_running"], one["lag"], one["invalid"] = []string{f.Name}, nil, nil
		return one, nil
	}
	one["not_running"] = notRunning
	if len(missing) > 0 {
		problems = append(problems, fmt.Sprintf("%s: %d of %d shards do not answer", f.Name, len(missing), shards))
	}
	if len(lagging) > 0 {
		problems = append(problems, fmt.Sprintf("%s: %d of %d shards lag", f.Name, len(lagging), shards))
	}
	if age := now.Sub(oldest); !oldest.IsZero() && age > 5*time.Minute {
		problems = append(problems, fmt.Sprintf("%s: the oldest checkpoint is from %s ago", f.Name,
			age.Round(time.Second)))
	}
	return one, problems
}

// wants reports whether a fold reads the kind that a subject ends with.
func (f *Fold) wants(subject string) bool {
	word := subject[strings.LastIndexByte(subject, '.')+1:]
	return word == schema.KindHost.String() || slices.ContainsFunc(f.Kinds, func(k schema.Kind) bool {
		return k.String() == word
	})
}

package answer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/snapshot"
)

const (
	silentAfter   = 30 * time.Second // three heartbeats
	laggingFrom   = 1000             // messages
	oldCheckpoint = 5 * time.Minute
	recentAlerts  = time.Hour
)

// Status is the health of the pipeline from the hosts to the folds.
type Status struct {
	Time     time.Time         `json:"time"`
	Healthy  bool              `json:"healthy"`
	Problems []string          `json:"problems"`
	Hosts    HostHealth        `json:"hosts"`
	Lost     map[string]uint64 `json:"lost"` // of all hosts, by cause
	Folds    []FoldHealth      `json:"folds"`
	Alerts   AlertHealth       `json:"alerts"`
}

// HostHealth counts hosts by when they were last heard of.
type HostHealth struct {
	Known  int          `json:"known"`
	Heard  int          `json:"heard"`  // in the last 30 s
	Silent []SilentHost `json:"silent"` // the others, the one that was silent for longest first
}

// SilentHost is a host that has sent nothing for 30 s.
type SilentHost struct {
	Cluster string    `json:"cluster"`
	Host    string    `json:"host"`
	Heard   time.Time `json:"heard"`
}

// FoldHealth is how the shards of one fold are doing.
type FoldHealth struct {
	Fold string `json:"fold"`
	Reach
	Instances  int        `json:"instances"`
	Lag        uint64     `json:"lag"`        // messages that are stored and not read, of all shards
	Lagging    []int      `json:"lagging"`    // shards with 1,000 such messages or more
	Checkpoint *time.Time `json:"checkpoint"` // the oldest of all shards; null: the states are not saved
	Invalid    uint64     `json:"invalid"`    // batches that the fold could not use
}

// AlertHealth counts the alerts that gputap-anomaly and gputap-leak keep.
type AlertHealth struct {
	Recent int            `json:"recent"` // of the last hour
	Newest *anomaly.Alert `json:"newest"`
}

// statusRow is how one shard of a fold is doing.
type statusRow struct {
	Lag        uint64
	Checkpoint time.Time // zero: the state is not saved
	Invalid    uint64
	Losses     []hostLosses
}

// hostLosses are the losses of one host, as far as the kinds that a fold reads tell.
type hostLosses struct {
	snapshot.HostID
	Lost losses
}

func statusOf(p *Part, q *query.Question) statusRow {
	s := p.Reader.Stats()
	row := statusRow{Lag: s.Lag, Checkpoint: p.Checkpoint, Invalid: s.Invalid + s.Refused}
	for _, h := range p.Reader.Hosts() {
		if lost := lossesOf(&h); len(lost) > 0 && q.OfHost(h.Cluster, h.Host) {
			row.Losses = append(row.Losses, hostLosses{snapshot.HostID{Cluster: h.Cluster, Host: h.Host}, lost})
		}
	}
	return row
}

// Status asks all folds. A fold that no instance runs is no problem, except leak. The filter selects hosts and alerts.
func (f *Fleet) Status(ctx context.Context, filter query.Filter) (*Status, error) {
	return f.statusAt(ctx, filter, time.Now())
}

func (f *Fleet) statusAt(ctx context.Context, filter query.Filter, now time.Time) (*Status, error) {
	s := &Status{Time: now.UTC(), Problems: []string{}, Lost: map[string]uint64{}}
	lost := map[snapshot.HostID]losses{} // folds read different kinds
	for _, fold := range []string{"leak", "launch", "bandwidth", "anomaly"} {
		health, err := f.foldHealth(ctx, filter, fold, lost)
		if err != nil {
			return nil, err
		}
		s.Folds = append(s.Folds, health)
	}
	for _, of := range lost {
		for cause, n := range of {
			s.Lost[cause] += n
		}
	}
	hosts, err := f.Hosts(ctx, query.Question{Filter: filter})
	if err != nil {
		return nil, err
	}
	s.addHosts(hosts.Items)
	alerts, err := f.Alerts(ctx, query.Question{Filter: filter, Limit: 1000})
	if err != nil {
		return nil, err
	}
	for i, a := range alerts.Items {
		if s.Time.Sub(a.Time) < recentAlerts {
			s.Alerts.Recent++
		}
		if s.Alerts.Newest == nil || a.Time.After(s.Alerts.Newest.Time) {
			s.Alerts.Newest = &alerts.Items[i]
		}
	}
	s.judge()
	return s, nil
}

// foldHealth also raises the losses of the hosts.
func (f *Fleet) foldHealth(ctx context.Context, filter query.Filter, fold string, lost map[snapshot.HostID]losses) (
	h FoldHealth, err error,
) {
	answers, reach, err := f.ask(ctx, query.Question{What: whatStatus, Filter: filter}, fold)
	if err != nil {
		return h, err
	}
	h = FoldHealth{Fold: fold, Reach: reach, Lagging: []int{}}
	instances := map[string]bool{}
	list, err := query.Rows[statusRow](answers[0])
	if err != nil {
		return h, err
	}
	for i, row := range list { // one row for each reply
		reply := answers[0].Replies[i]
		instances[reply.Instance] = true
		h.Lag += row.Lag
		h.Invalid += row.Invalid
		if row.Lag >= laggingFrom {
			h.Lagging = append(h.Lagging, reply.Shard)
		}
		if !row.Checkpoint.IsZero() && (h.Checkpoint == nil || row.Checkpoint.Before(*h.Checkpoint)) {
			h.Checkpoint = &row.Checkpoint
		}
		for _, of := range row.Losses {
			if lost[of.HostID] == nil {
				lost[of.HostID] = losses{}
			}
			for cause, n := range of.Lost {
				lost[of.HostID].raise(cause, n)
			}
		}
	}
	h.Instances = len(instances)
	return h, nil
}

// Running reports whether any instance runs the fold.
func (h *FoldHealth) Running() bool { return len(h.NotRunning) == 0 }

// NotRunning lists the folds that no instance runs.
func (s *Status) NotRunning() (names []string) {
	for i := range s.Folds {
		if !s.Folds[i].Running() {
			names = append(names, s.Folds[i].Fold)
		}
	}
	return names
}

func (s *Status) addHosts(hosts []FleetHost) {
	s.Hosts = HostHealth{Known: len(hosts), Silent: []SilentHost{}}
	for i := range hosts {
		h := &hosts[i]
		if h.Heard != nil && s.Time.Sub(*h.Heard) <= silentAfter {
			s.Hosts.Heard++
			continue
		}
		silent := SilentHost{Cluster: h.Cluster, Host: h.Host.Host}
		if h.Heard != nil {
			silent.Heard = *h.Heard
		}
		s.Hosts.Silent = append(s.Hosts.Silent, silent)
	}
	slices.SortStableFunc(s.Hosts.Silent, func(a, b SilentHost) int {
		return cmp.Or(a.Heard.Compare(b.Heard), strings.Compare(a.Cluster+"/"+a.Host, b.Cluster+"/"+b.Host))
	})
}

// judge lists the problems. It ignores losses and alerts, because they stay after their cause is gone.
func (s *Status) judge() {
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	switch n := len(s.Hosts.Silent); {
	case n > 0:
		problem("%d of %d hosts are silent", n, s.Hosts.Known)
	case s.Hosts.Known == 0 && s.Folds[0].Running(): // leak, which knows the hosts
		problem("no host was ever heard of")
	}
	for i := range s.Folds {
		h := &s.Folds[i]
		if !h.Running() {
			if h.Fold == "leak" {
				problem("gputap-leak does not run")
			}
			continue
		}
		if len(h.Missing) > 0 {
			problem("%s: %d of %d shards do not answer", h.Fold, len(h.Missing), h.Shards)
		}
		if len(h.Lagging) > 0 {
			problem("%s: %d of %d shards lag", h.Fold, len(h.Lagging), h.Shards)
		}
		if h.Checkpoint != nil && s.Time.Sub(*h.Checkpoint) > oldCheckpoint && s.Hosts.Heard > 0 {
			problem("%s: the oldest checkpoint is from %s ago", h.Fold,
				s.Time.Sub(*h.Checkpoint).Round(time.Second))
		}
	}
	s.Healthy = len(s.Problems) == 0
}

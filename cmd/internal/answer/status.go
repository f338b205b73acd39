package answer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/snapshot"
)

const (
	laggingFrom   = 1000 // messages
	oldCheckpoint = 5 * time.Minute
	recentAlerts  = time.Hour
)

// Status is the health of the pipeline from the hosts to the folds.
type Status struct {
	Time     time.Time         `json:"time"`
	Healthy  bool              `json:"healthy"`
	Problems []string          `json:"problems"`
	Hosts    *HostHealth       `json:"hosts"` // null: unknown, because gputap-leak did not answer
	Lost     map[string]uint64 `json:"lost"`  // of all hosts, by cause; null: no fold answered
	Folds    []FoldHealth      `json:"folds"`
	Alerts   AlertHealth       `json:"alerts"`
}

// HostHealth counts hosts by when they were last heard of.
type HostHealth struct {
	Known  int          `json:"known"`
	Heard  int          `json:"heard"`  // in the last 30 s
	Silent []SilentHost `json:"silent"` // the others, the one that was silent for longest first

	missing []int // shards whose hosts are unknown
}

// Missing lists the shards of gputap-leak that did not answer: their hosts are unknown.
func (h *HostHealth) Missing() []int { return h.missing }

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
	Instances  int        `json:"instances"`  // that answered
	Lag        *uint64    `json:"lag"`        // messages that are stored and not read; null: no shard answered
	Lagging    []int      `json:"lagging"`    // shards with 1,000 such messages or more
	Checkpoint *time.Time `json:"checkpoint"` // the oldest that has all of a shard; null: the states are not saved
	Invalid    *uint64    `json:"invalid"`    // batches that the fold could not use; null as lag
}

// AlertHealth counts the alerts that gputap-anomaly and gputap-leak keep.
type AlertHealth struct {
	Recent *int           `json:"recent"` // of the last hour; null: unknown, because one of the two did not answer
	Newest *anomaly.Alert `json:"newest"` // of those that answered
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
	Lost map[string]uint64
}

func statusOf(p *Part, q *query.Question) statusRow {
	s := p.Reader.Stats()
	row := statusRow{Lag: s.Lag, Checkpoint: p.Checkpoint, Invalid: s.Invalid + s.Refused}
	for _, h := range p.Reader.Hosts() {
		if lost := report.LossesOf(&h); len(lost) > 0 && q.OfHost(h.Cluster, h.Host) {
			row.Losses = append(row.Losses, hostLosses{snapshot.HostID{Cluster: h.Cluster, Host: h.Host}, lost})
		}
	}
	return row
}

// statusFolds are the folds whose shards Status asks.
var statusFolds = []string{"leak", "launch", "bandwidth", "anomaly"}

// Status asks all folds at once. A fold that no instance runs is no problem, except leak. The filter selects hosts and
// alerts.
func (f *Fleet) Status(ctx context.Context, filter query.Filter) (*Status, error) {
	return f.statusAt(ctx, filter, time.Now())
}

func (f *Fleet) statusAt(ctx context.Context, filter query.Filter, now time.Time) (*Status, error) {
	var questions []asked
	for _, fold := range statusFolds {
		questions = append(questions, asked{fold, query.Question{What: whatStatus, Filter: filter}})
	}
	newest := query.Question{What: whatAlerts, Filter: filter, Limit: 1000}
	questions = append(questions, asked{"leak", query.Question{What: whatHosts, Filter: filter}},
		asked{"anomaly", newest}, asked{"leak", newest})
	answers, shards, err := f.askEach(ctx, questions)
	if err != nil {
		return nil, err
	}
	s := &Status{Time: now.UTC(), Problems: []string{}}
	health, others := answers[:len(statusFolds)], answers[len(statusFolds):]
	for _, a := range health {
		h, err := healthOf(a, shards)
		if err != nil {
			return nil, err
		}
		s.Folds = append(s.Folds, h)
	}
	if err := errors.Join(s.addLosses(health), s.addHosts(others[0]), s.addAlerts(others[1:])); err != nil {
		return nil, err
	}
	s.judge()
	return s, nil
}

// healthOf reads the answer of a fold to the question about its status.
func healthOf(a *query.Answer, shards *topology) (h FoldHealth, err error) {
	h = FoldHealth{Fold: a.Fold, Reach: reachOf(shards, a), Lagging: []int{}}
	list, err := query.Rows[statusRow](a)
	if err != nil {
		return h, err
	}
	instances := map[string]bool{}
	for i, row := range list { // one row for each reply
		if i == 0 {
			h.Lag, h.Invalid = new(uint64), new(uint64)
		}
		reply := a.Replies[i]
		instances[reply.Instance] = true
		*h.Lag += row.Lag
		*h.Invalid += row.Invalid
		if row.Lag >= laggingFrom {
			h.Lagging = append(h.Lagging, reply.Shard)
		}
		if !row.Checkpoint.IsZero() && (h.Checkpoint == nil || row.Checkpoint.Before(*h.Checkpoint)) {
			h.Checkpoint = &row.Checkpoint
		}
	}
	h.Instances = len(instances)
	return h, nil
}

// addLosses adds up the losses of the hosts, unless no fold answered. Folds read different kinds of one host, so the
// largest count of each cause is the one of all kinds.
func (s *Status) addLosses(health []*query.Answer) error {
	hosts := map[snapshot.HostID]map[string]uint64{}
	for _, a := range health {
		list, err := query.Rows[statusRow](a)
		if err != nil {
			return err
		}
		if s.Lost == nil && len(list) > 0 {
			s.Lost = map[string]uint64{}
		}
		for _, row := range list {
			for _, of := range row.Losses {
				if hosts[of.HostID] == nil {
					hosts[of.HostID] = map[string]uint64{}
				}
				for cause, n := range of.Lost {
					hosts[of.HostID][cause] = max(n, hosts[of.HostID][cause])
				}
			}
		}
	}
	for _, lost := range hosts {
		for cause, n := range lost {
			s.Lost[cause] += n
		}
	}
	return nil
}

// addAlerts counts the alerts of all folds that keep some.
func (s *Status) addAlerts(answers []*query.Answer) error {
	recent, known := 0, true
	for _, a := range answers {
		list, err := query.Rows[anomaly.Alert](a)
		if err != nil {
			return err
		}
		known = known && len(a.Replies) > 0
		for i := range list {
			if s.Time.Sub(list[i].Time) < recentAlerts {
				recent++
			}
			if s.Alerts.Newest == nil || list[i].Time.After(s.Alerts.Newest.Time) {
				s.Alerts.Newest = &list[i]
			}
		}
	}
	if known {
		s.Alerts.Recent = &recent
	}
	return nil
}

// MovingText says that shards lack an answer because their number was changed a moment ago; "": another cause.
func (s *Status) MovingText() string {
	for i := range s.Folds {
		if text := s.Folds[i].MovingText(); text != "" {
			return text
		}
	}
	return ""
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

// addHosts counts the hosts, unless no shard knows them.
func (s *Status) addHosts(a *query.Answer) error {
	if len(a.Replies) == 0 {
		return nil
	}
	hosts, err := fleetHosts(a, s.Time)
	if err != nil {
		return err
	}
	s.Hosts = &HostHealth{Known: len(hosts), Silent: []SilentHost{}}
	for _, m := range a.Missing {
		s.Hosts.missing = append(s.Hosts.missing, m.Shard)
	}
	for i := range hosts {
		h := &hosts[i]
		if h.Heard != nil && s.Time.Sub(*h.Heard) <= report.SilentAfter {
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
	return nil
}

// judge lists the problems. It ignores losses and alerts, because they stay after their cause is gone.
func (s *Status) judge() {
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	moving := s.MovingText()
	if moving != "" {
		problem("%s", moving)
	}
	switch h := s.Hosts; {
	case h == nil: // gputap-leak, which knows the hosts, is the problem
	case len(h.Silent) > 0:
		problem("%d of %d hosts are silent", len(h.Silent), h.Known)
	case h.Known == 0 && len(h.missing) == 0:
		problem("no host was ever heard of")
	}
	for i := range s.Folds {
		h := &s.Folds[i]
		if !h.Running() {
			if h.Fold == "leak" && moving == "" {
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
		if h.Checkpoint != nil && s.Time.Sub(*h.Checkpoint) > oldCheckpoint && s.Hosts != nil && s.Hosts.Heard > 0 {
			problem("%s: the oldest checkpoint is from %s ago", h.Fold,
				s.Time.Sub(*h.Checkpoint).Round(time.Second))
		}
	}
	s.Healthy = len(s.Problems) == 0
}

package backtest

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// variant runs the rules with one configuration.
type variant struct {
	rules Rules
	log   *slog.Logger

	anomalies fold.Fold // of all hosts: the rules about jobs compare hosts of several shards
	replay    *consumer.Replay
	read      uint64         // messages that replay got
	summaries []rank.Summary // that anomalies published and did not read yet
	memory    map[*moved.Lane]*laneMemory

	within bool // the range has begun
	raised []*Incident
	byID   map[string]*Incident
	before map[finding]uint64 // suppressed before the range
}

// laneMemory is the fold of gputap-leak of one lane. The state at the beginning of a recording belongs to one.
type laneMemory struct {
	fold.Fold
	replay *consumer.Replay
}

// finding identifies a count of findings that raised no alert.
type finding struct{ rule, reason string }

func newVariant(r Rules, whole bool, log *slog.Logger) *variant {
	v := &variant{rules: r, log: log, memory: map[*moved.Lane]*laneMemory{}, byID: map[string]*Incident{}}
	v.anomalies = fold.Anomaly.With(config.AnomalyCommand{Anomaly: r.Anomaly}, v.note,
		func(s rank.Summary) { v.summaries = append(v.summaries, s) }).New()
	v.replay = consumer.NewReplay(0, v.anomalies, whole, log)
	return v
}

func (v *variant) memoryOf(lane *moved.Lane, whole bool) *laneMemory {
	m := v.memory[lane]
	if m == nil {
		f := fold.Leak.With(config.LeakCommand{Leak: v.rules.Leak}, v.note, nil).New()
		m = &laneMemory{f, consumer.NewReplay(lane.Shard(), f, whole, v.log)}
		v.memory[lane] = m
	}
	return m
}

// note keeps an alert that fired or cleared.
func (v *variant) note(a alert.Alert) {
	i := v.byID[a.ID]
	switch {
	case a.State == alert.Cleared:
		if i != nil {
			i.Cleared = a.Time
		}
	case i != nil:
		i.Alert, i.Cleared = a, time.Time{}
	case v.within:
		i = &Incident{Alert: a, Fired: a.Time}
		v.byID[a.ID] = i
		v.raised = append(v.raised, i)
	}
}

// begin makes the variant keep alerts and counts from now on.
func (v *variant) begin() {
	if !v.within {
		v.within, v.before = true, v.suppressed()
	}
}

// apply takes the next message of the recording. It computes the summaries of ranks from the events: recorded summaries
// are of another instance, with other numbers.
func (v *variant) apply(m *source.Routed, whole bool) {
	v.memoryOf(m.Lane, whole).replay.Apply(&m.Message)
	if strings.HasSuffix(m.Subject, "."+schema.KindRank.String()) {
		return
	}
	v.judge(m.Recorded)
	for ; len(v.summaries) > 0; v.summaries = v.summaries[1:] {
		one := &v.summaries[0]
		v.judge(&recording.Message{Subject: schema.Subject(0, one.Cluster, one.Job, schema.KindRank), Stored: m.Stored,
			Data: one.Message})
	}
}

// judge gives a message to the rules of gputap-anomaly, as one of shard 0: one replay reads the messages of all shards,
// and their sequences together would not rise.
func (v *variant) judge(m *recording.Message) {
	v.read++
	one := *m
	one.Shard, one.Sequence = 0, v.read
	if rest, own := strings.CutPrefix(m.Subject, subjectsOf(m.Shard)); own {
		one.Subject = subjectsOf(0) + rest
	}
	v.replay.Apply(&one)
}

// subjectsOf returns what the subjects of a shard begin with.
func subjectsOf(shard int) string { return strings.TrimSuffix(schema.ShardSubjects(shard), ">") }

// incidents returns the alerts that fired within the range, oldest first.
func (v *variant) incidents() []*Incident {
	slices.SortStableFunc(v.raised, func(a, b *Incident) int {
		return cmp.Or(a.Fired.Compare(b.Fired), cmp.Compare(a.Host, b.Host), cmp.Compare(a.ID, b.ID))
	})
	return v.raised
}

// suppressed returns how many findings raised no alert until now. The folds count them as metrics.
func (v *variant) suppressed() map[finding]uint64 {
	counts := map[finding]uint64{}
	v.count(v.anomalies, counts)
	for _, m := range v.memory {
		v.count(m, counts)
	}
	return counts
}

func (v *variant) count(c prometheus.Collector, counts map[finding]uint64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		v.log.Warn("some counts of suppressed findings are missing", "err", err)
	}
	for _, family := range families {
		if !strings.HasSuffix(family.GetName(), "_suppressed_total") {
			continue
		}
		for _, m := range family.Metric {
			var f finding
			for _, l := range m.Label {
				switch l.GetName() {
				case "rule":
					f.rule = l.GetValue()
				case "reason":
					f.reason = l.GetValue()
				}
			}
			counts[f] += uint64(m.Counter.GetValue())
		}
	}
}

// restore gives the fold of gputap-leak its state at the beginning of the recording.
func (v *variant) restore(lane *moved.Lane, s recording.Section, whole bool) error {
	if err := v.memoryOf(lane, whole).replay.Restore(s); err != nil {
		return fmt.Errorf("shard %d: the state at the beginning cannot be used: %w", s.Shard, err)
	}
	return nil
}

package fold

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/job"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/rank"
)

// Anomalies is the fold of gputap-anomaly: the rules about processes and hosts, the summaries of ranks, and the rule
// that compares the ranks of a job. Ranks publishes to the shards of the jobs, from where Jobs reads.
type Anomalies struct {
	composite
	Detector *anomaly.Detector
	Ranks    *rank.Fold
	Jobs     *job.Fold
}

func newAnomalies(c config.Anomaly, to outputs) *Anomalies {
	w := &Anomalies{Detector: newDetector(c, to.raise), Ranks: rank.New(rank.Config{Publish: to.summarize})}
	exclude := rulesOf(c).Exclude
	w.Jobs = job.New(job.Config{
		Severity: stragglerSeverity(c), Cooldown: c.Cooldown,
		Excluded: func(i *process.Info) bool { return exclude.Excludes("straggler", i) }, OnAlert: to.raise,
	})
	w.composite = newComposite(w.Detector, w.Ranks, w.Jobs)
	return w
}

// stragglerSeverity returns that of the alerts; "": the rule is off.
func stragglerSeverity(c config.Anomaly) string {
	switch cmp.Or(modeOf(c.Mode), modeOf(c.Rules.Straggler.Mode)) {
	case alert.ModeOff:
		return ""
	case alert.ModeAlert:
		return alert.Warning
	}
	return alert.Info
}

// Name returns that of the detector.
func (w *Anomalies) Name() string { return w.Detector.Name() }

// Alerts returns the alerts of all rules, oldest first.
func (w *Anomalies) Alerts() []alert.Alert {
	all := slices.Concat(w.Detector.Alerts(), w.Jobs.Alerts())
	slices.SortFunc(all, func(a, b alert.Alert) int { return a.Compare(&b) })
	return all
}

// newDetector returns the anomaly fold of a configuration.
func newDetector(c config.Anomaly, r raise) *anomaly.Detector {
	return anomaly.New(anomaly.Config{Rules: rulesOf(c), OnAlert: r})
}

func rulesOf(c config.Anomaly) rule.Config {
	r := &c.Rules
	return rule.Config{
		Mode: modeOf(c.Mode), Warmup: c.Warmup, Cooldown: c.Cooldown,
		Exclude: alert.Exclude{Comm: c.Exclude.Comm, User: c.Exclude.User, Job: c.Exclude.Job},
		AllocSize: rule.AllocSize{
			Mode: modeOf(r.AllocSize.Mode), MinBytes: uint64(r.AllocSize.MinBytes), Factor: r.AllocSize.Factor,
			Allocations: r.AllocSize.Allocations, Hold: r.AllocSize.Hold,
		},
		OOM: rule.OOM{Mode: modeOf(r.OOM.Mode), Recover: r.OOM.Recover},
		AllocRate: rule.AllocRate{
			Mode: modeOf(r.AllocRate.Mode), Factor: r.AllocRate.Factor, MinPerSecond: r.AllocRate.MinPerSecond,
		},
		LaunchCollapse: rule.LaunchCollapse{
			Mode: modeOf(r.LaunchCollapse.Mode), Percent: r.LaunchCollapse.Percent,
			MinPerSecond: r.LaunchCollapse.MinPerSecond, For: r.LaunchCollapse.For,
		},
		CopyRegression: rule.CopyRegression{
			Mode: modeOf(r.CopyRegression.Mode), Percent: r.CopyRegression.Percent,
		},
		PageableCopies: rule.PageableCopies{
			Mode: modeOf(r.PageableCopies.Mode), MinBytesPerSecond: uint64(r.PageableCopies.MinBytesPerSecond),
		},
		TelemetryLoss: rule.TelemetryLoss{Mode: modeOf(r.TelemetryLoss.Mode), Quiet: r.TelemetryLoss.Quiet},
	}
}

// modeOf returns the mode that a key names; default is the rule's own.
func modeOf(mode string) rule.Mode {
	if mode == config.ModeDefault {
		return ""
	}
	return rule.Mode(mode)
}

// NewAnomalies returns an empty fold of gputap-anomaly. The functions may be nil.
func NewAnomalies(c config.Anomaly, raise func(alert.Alert), summarize func(rank.Summary)) *Anomalies {
	return newAnomalies(c, outputs{raise, summarize})
}

// AnomaliesIn returns a fold as NewAnomalies does, which publishes summaries of ranks to js until ctx ends.
func AnomaliesIn(ctx context.Context, c config.Anomaly, js jetstream.JetStream, raise func(alert.Alert),
	log *slog.Logger) *Anomalies {
	s := newSummaries(js, Anomaly.Name(), log)
	return NewAnomalies(c, raise, func(one rank.Summary) { s.publish(ctx, one) })
}

package fold

import (
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/anomaly/rule"
)

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

// DetectorIn returns an empty anomaly fold with the default thresholds and all rules in a mode of config.
func DetectorIn(mode string, raise func(alert.Alert)) *anomaly.Detector {
	c := config.DefaultAnomalyCommand().Anomaly
	c.Mode = mode
	return newDetector(c, raise)
}

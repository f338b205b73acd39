package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Anomaly is the section of the anomaly fold.
type Anomaly struct {
	Mode     string        `koanf:"mode" flag:"anomaly-mode"`
	Warmup   time.Duration `koanf:"warmup"`
	Cooldown time.Duration `koanf:"cooldown"`
	Exclude  Exclude       `koanf:"exclude"`
	Rules    AnomalyRules  `koanf:"rules"`
}

// Exclude lists processes about which no alert is raised.
type Exclude struct {
	Comm []string `koanf:"comm"`
	User []string `koanf:"user"`
	Job  []string `koanf:"job"`
}

// AnomalyRules holds a section for each rule.
type AnomalyRules struct {
	AllocSize      AllocSizeRule      `koanf:"alloc_size"`
	OOM            OOMRule            `koanf:"oom"`
	AllocRate      AllocRateRule      `koanf:"alloc_rate"`
	LaunchCollapse LaunchCollapseRule `koanf:"launch_collapse"`
	CopyRegression CopyRegressionRule `koanf:"copy_regression"`
	PageableCopies PageableCopiesRule `koanf:"pageable_copies"`
	Straggler      StragglerRule      `koanf:"straggler"`
	TelemetryLoss  TelemetryLossRule  `koanf:"telemetry_loss"`
	HostSilent     HostSilentRule     `koanf:"host_silent"`
}

// AllocSizeRule is the section of the rule alloc_size.
type AllocSizeRule struct {
	Mode        string        `koanf:"mode"`
	MinBytes    Bytes         `koanf:"min_bytes"`
	Factor      int           `koanf:"factor"`
	Allocations int           `koanf:"allocations"`
	Hold        time.Duration `koanf:"hold"`
}

// OOMRule is the section of the rule oom.
type OOMRule struct {
	Mode    string        `koanf:"mode"`
	Recover time.Duration `koanf:"recover"`
}

// AllocRateRule is the section of the rule alloc_rate.
type AllocRateRule struct {
	Mode         string `koanf:"mode"`
	Factor       int    `koanf:"factor"`
	MinPerSecond int    `koanf:"min_per_second"`
}

// LaunchCollapseRule is the section of the rule launch_collapse.
type LaunchCollapseRule struct {
	Mode         string        `koanf:"mode"`
	Percent      int           `koanf:"percent"`
	MinPerSecond int           `koanf:"min_per_second"`
	For          time.Duration `koanf:"for"`
}

// CopyRegressionRule is the section of the rule copy_regression.
type CopyRegressionRule struct {
	Mode    string `koanf:"mode"`
	Percent int    `koanf:"percent"`
}

// PageableCopiesRule is the section of the rule pageable_copies.
type PageableCopiesRule struct {
	Mode              string `koanf:"mode"`
	MinBytesPerSecond Bytes  `koanf:"min_bytes_per_second"`
}

// StragglerRule is the section of the rule straggler.
type StragglerRule struct {
	Mode string `koanf:"mode"`
}

// TelemetryLossRule is the section of the rule telemetry_loss.
type TelemetryLossRule struct {
	Mode  string        `koanf:"mode"`
	Quiet time.Duration `koanf:"quiet"`
}

// HostSilentRule is the section of the rule host_silent.
type HostSilentRule struct {
	Mode  string        `koanf:"mode"`
	After time.Duration `koanf:"after"`
}

// Modes of rules. ModeDefault leaves each rule its own.
const (
	ModeDefault = "default"
	ModeOff     = "off"
	ModeObserve = "observe"
	ModeAlert   = "alert"
)

// DefaultAnomaly returns the section without any file, variable or flag.
func DefaultAnomaly() Anomaly {
	return Anomaly{
		Mode: ModeDefault, Cooldown: 15 * time.Minute,
		Rules: AnomalyRules{
			AllocSize: AllocSizeRule{Mode: ModeAlert, MinBytes: 512 << 20, Factor: 8, Allocations: 10,
				Hold: 30 * time.Second},
			OOM:            OOMRule{Mode: ModeAlert, Recover: 10 * time.Second},
			AllocRate:      AllocRateRule{Mode: ModeObserve, Factor: 4, MinPerSecond: 100},
			LaunchCollapse: LaunchCollapseRule{ModeObserve, 30, 100, 3 * time.Minute},
			CopyRegression: CopyRegressionRule{ModeObserve, 20},
			PageableCopies: PageableCopiesRule{ModeObserve, 25 << 20},
			Straggler:      StragglerRule{ModeObserve},
			TelemetryLoss:  TelemetryLossRule{ModeAlert, time.Minute},
			HostSilent:     HostSilentRule{ModeAlert, 2 * time.Minute},
		},
	}
}

// Validate names the first key with a wrong value.
func (a Anomaly) Validate() error {
	r := &a.Rules
	if err := checkMode("anomaly.mode", a.Mode, ModeDefault); err != nil {
		return err
	}
	for rule, mode := range map[string]string{
		"alloc_size": r.AllocSize.Mode, "oom": r.OOM.Mode, "alloc_rate": r.AllocRate.Mode,
		"launch_collapse": r.LaunchCollapse.Mode, "copy_regression": r.CopyRegression.Mode,
		"pageable_copies": r.PageableCopies.Mode, "telemetry_loss": r.TelemetryLoss.Mode,
		"host_silent": r.HostSilent.Mode, "straggler": r.Straggler.Mode,
	} {
		if err := checkMode("anomaly.rules."+rule+".mode", mode); err != nil {
			return err
		}
	}
	for key, n := range map[string]int{
		"alloc_size.min_bytes": int(r.AllocSize.MinBytes), "alloc_size.allocations": r.AllocSize.Allocations,
		"alloc_rate.min_per_second":            r.AllocRate.MinPerSecond,
		"launch_collapse.min_per_second":       r.LaunchCollapse.MinPerSecond,
		"pageable_copies.min_bytes_per_second": int(r.PageableCopies.MinBytesPerSecond),
	} {
		if n < 1 {
			return fmt.Errorf("anomaly.rules.%s: %d is too small; use 1 or more", key, n)
		}
	}
	return a.checkRanges()
}

// checkRanges checks the values that have a largest one too, the times, and the patterns.
func (a Anomaly) checkRanges() error {
	r := &a.Rules
	for _, key := range []struct {
		name           string
		n, least, most int
	}{
		{"alloc_size.factor", r.AllocSize.Factor, 2, 1 << 20}, {"alloc_rate.factor", r.AllocRate.Factor, 2, 1 << 20},
		{"launch_collapse.percent", r.LaunchCollapse.Percent, 1, 49},
		{"copy_regression.percent", r.CopyRegression.Percent, 1, 99},
	} {
		if key.n < key.least || key.n > key.most {
			return fmt.Errorf("anomaly.rules.%s: %d is out of range; use %d to %d", key.name, key.n, key.least,
				key.most)
		}
	}
	for key, d := range map[string]time.Duration{
		"alloc_size.hold": r.AllocSize.Hold, "oom.recover": r.OOM.Recover, "launch_collapse.for": r.LaunchCollapse.For,
		"telemetry_loss.quiet": r.TelemetryLoss.Quiet, "host_silent.after": r.HostSilent.After,
	} {
		if d < time.Second {
			return fmt.Errorf("anomaly.rules.%s: %s is too short; use at least 1s", key, d)
		}
	}
	return a.Exclude.validate("anomaly", "alloc_size", "oom", "oom_recovered", "alloc_rate", "launch_collapse",
		"copy_regression", "pageable_copies", "straggler")
}

// validate checks the patterns, and the rules that some of them name.
func (e Exclude) validate(section string, rules ...string) error {
	for key, patterns := range map[string][]string{"comm": e.Comm, "user": e.User, "job": e.Job} {
		for _, p := range patterns {
			if rule, _, named := strings.Cut(p, "="); named && !slices.Contains(rules, rule) {
				return fmt.Errorf("%s.exclude.%s: %q: %q is not a rule of %s; use one of %s", section, key, p, rule,
					section, strings.Join(rules, ", "))
			}
			if _, err := path.Match(p, ""); err != nil {
				return fmt.Errorf("%s.exclude.%s: %q is not a pattern; use *, ? and [a-z]", section, key, p)
			}
		}
	}
	return nil
}

func checkMode(key, mode string, more ...string) error {
	all := append([]string{ModeOff, ModeObserve, ModeAlert}, more...)
	if !slices.Contains(all, mode) {
		return fmt.Errorf("%s: unknown %q; use %s", key, mode, strings.Join(all, ", "))
	}
	return nil
}

package rule

import (
	"cmp"
	"time"

	"github.com/gputap/gputap/consumer/alert"
)

// Mode says what a rule does with a finding.
type Mode = alert.Mode

// Modes. The empty Mode of a rule is its default.
const (
	Off     = alert.ModeOff
	Observe = alert.ModeObserve
	Alert   = alert.ModeAlert
)

// Config configures the rules. The zero Config is usable: 0 stands for the default of each threshold.
type Config struct {
	Mode     Mode          // of all rules; "": each has its own
	Warmup   time.Duration // after the start of a process, how long alloc_size does not judge it; 0: not at all
	Cooldown time.Duration // after an alert cleared, how long an equal finding raises none; 0: 15 minutes
	Exclude  alert.Exclude

	AllocSize      AllocSize
	OOM            OOM
	AllocRate      AllocRate
	LaunchCollapse LaunchCollapse
	CopyRegression CopyRegression
	PageableCopies PageableCopies
	TelemetryLoss  TelemetryLoss
}

// AllocSize configures alloc_size.
type AllocSize struct {
	Mode        Mode
	MinBytes    uint64        // of an odd allocation; 0: 512 MiB
	Factor      int           // times the largest allocation before; 0: 8
	Allocations int           // before it; 0: 10
	Hold        time.Duration // how long to wait for more of its size; 0: 30 s
}

// OOM configures oom and oom_recovered.
type OOM struct {
	Mode    Mode
	Recover time.Duration // how long to wait for an allocation that succeeds; 0: 10 s
}

// AllocRate configures alloc_rate.
type AllocRate struct {
	Mode         Mode
	Factor       int // times the usual rate; 0: 4
	MinPerSecond int // 0: 100
}

// LaunchCollapse configures launch_collapse.
type LaunchCollapse struct {
	Mode         Mode
	Percent      int           // of the usual rate; 0: 30
	MinPerSecond int           // of the usual rate; 0: 100
	For          time.Duration // how long the rate must be low; 0: 3 minutes
}

// CopyRegression configures copy_regression.
type CopyRegression struct {
	Mode    Mode
	Percent int // below the usual throughput; 0: 20
}

// PageableCopies configures pageable_copies.
type PageableCopies struct {
	Mode              Mode
	MinBytesPerSecond uint64 // copied; 0: 25 MiB
}

// TelemetryLoss configures telemetry_loss.
type TelemetryLoss struct {
	Mode  Mode
	Quiet time.Duration // without loss, until the alert clears; 0: 1 minute
}

// withDefaults replaces zeros and applies the mode of all rules.
func (c Config) withDefaults() Config {
	c.Cooldown = cmp.Or(c.Cooldown, 15*time.Minute)
	for mode, own := range map[*Mode]Mode{
		&c.AllocSize.Mode: Alert, &c.OOM.Mode: Alert, &c.TelemetryLoss.Mode: Alert, &c.AllocRate.Mode: Observe,
		&c.LaunchCollapse.Mode: Observe, &c.CopyRegression.Mode: Observe, &c.PageableCopies.Mode: Observe,
	} {
		*mode = cmp.Or(c.Mode, *mode, own)
	}
	s := &c.AllocSize
	s.MinBytes, s.Factor, s.Allocations = cmp.Or(s.MinBytes, 512<<20), cmp.Or(s.Factor, 8), cmp.Or(s.Allocations, 10)
	s.Hold = cmp.Or(s.Hold, 30*time.Second)
	c.OOM.Recover = cmp.Or(c.OOM.Recover, 10*time.Second)
	c.AllocRate.Factor = cmp.Or(c.AllocRate.Factor, 4)
	c.AllocRate.MinPerSecond = cmp.Or(c.AllocRate.MinPerSecond, 100)
	l := &c.LaunchCollapse
	l.Percent, l.MinPerSecond, l.For = cmp.Or(l.Percent, 30), cmp.Or(l.MinPerSecond, 100), cmp.Or(l.For, 3*time.Minute)
	c.CopyRegression.Percent = cmp.Or(c.CopyRegression.Percent, 20)
	c.PageableCopies.MinBytesPerSecond = cmp.Or(c.PageableCopies.MinBytesPerSecond, 25<<20)
	c.TelemetryLoss.Quiet = cmp.Or(c.TelemetryLoss.Quiet, time.Minute)
	return c
}

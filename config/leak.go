package config

import (
	"cmp"
	"fmt"
	"time"
)

// Leak is the section of the leak fold.
type Leak struct {
	Window    time.Duration `koanf:"window" flag:"leak-window"`
	KeepEnded time.Duration `koanf:"keep_ended"`
	Mode      string        `koanf:"mode"`
	Cooldown  time.Duration `koanf:"cooldown"`
	Exclude   Exclude       `koanf:"exclude"`
	Rules     LeakRules     `koanf:"rules"`
}

// LeakRules holds a section for each rule.
type LeakRules struct {
	Growth  LeakGrowthRule    `koanf:"leak_growth"`
	Unfreed UnfreedAtExitRule `koanf:"unfreed_at_exit"`
}

// LeakGrowthRule is the section of the rule leak_growth.
type LeakGrowthRule struct {
	Mode string `koanf:"mode"`
}

// UnfreedAtExitRule is the section of the rule unfreed_at_exit.
type UnfreedAtExitRule struct {
	Mode     string `koanf:"mode"`
	MinBytes Bytes  `koanf:"min_bytes"`
}

// DefaultLeak returns the section without any file, variable or flag.
func DefaultLeak() Leak {
	return Leak{
		Window: time.Minute, KeepEnded: keepIdle, Mode: ModeDefault, Cooldown: 15 * time.Minute,
		Rules: LeakRules{LeakGrowthRule{ModeAlert}, UnfreedAtExitRule{ModeObserve, 256 << 20}},
	}
}

// Validate names the first key with a wrong value.
func (l Leak) Validate() error {
	r := &l.Rules
	if r.Unfreed.MinBytes < 1 {
		return fmt.Errorf("leak.rules.unfreed_at_exit.min_bytes: %s is too small; use 1 or more", r.Unfreed.MinBytes)
	}
	if l.Window < minWindow {
		return fmt.Errorf("leak.window: %s is too short; use at least %s", l.Window, minWindow)
	}
	return cmp.Or(checkMode("leak.mode", l.Mode, ModeDefault),
		checkMode("leak.rules.leak_growth.mode", r.Growth.Mode),
		checkMode("leak.rules.unfreed_at_exit.mode", r.Unfreed.Mode),
		l.Exclude.validate("leak", "leak_growth", "unfreed_at_exit"))
}

const minWindow = time.Second

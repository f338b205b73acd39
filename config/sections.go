package config

import (
	"fmt"
	"regexp"
	"time"
)

// Consumer is the section of a consumer.
type Consumer struct {
	Instance        string        `koanf:"instance" doc:"name among the instances that share the shards (default: one is made)"`
	Checkpoint      time.Duration `koanf:"checkpoint" doc:"time between two checkpoints of a shard"`
	Shard           int           `koanf:"shard" doc:"fold this shard alone, and save nothing (-1: share all shards, and their saved states, with the other instances)"`
	From            string        `koanf:"from" doc:"where to begin a shard that is folded alone: all, new, or a time of the bus (RFC 3339)"`
	PullMaxBytes    Bytes         `koanf:"pull_max_bytes" doc:"most bytes of messages under way, for each shard; less with more than four shards"`
	DisplayInterval time.Duration `koanf:"display_interval" flag:"display-interval" doc:"time between reports on standard output (0: none)"`
}

// Begin parses From: only what is new, or what was stored since a time; neither is all.
func (c Consumer) Begin() (onlyNew bool, since time.Time, err error) {
	switch c.From {
	case "all":
		return false, time.Time{}, nil
	case "new":
		return true, time.Time{}, nil
	}
	if since, err = time.Parse(time.RFC3339, c.From); err != nil {
		return false, time.Time{}, fmt.Errorf("consumer.from: %q: use all, new or a time such as 2026-01-31T12:00:00Z", c.From)
	}
	return false, since, nil
}

// badInstance is what no key of a bucket has. A dot becomes an underscore there.
var badInstance = regexp.MustCompile(`[^-_/=.a-zA-Z0-9]`)

// Validate names a key that makes no sense.
func (c Consumer) Validate() error {
	switch {
	case badInstance.MatchString(c.Instance):
		return fmt.Errorf("consumer.instance: %q: use letters, digits, - and _", c.Instance)
	case c.Shard < -1:
		return fmt.Errorf("consumer.shard: %d: use 0 or more, or -1 for all", c.Shard)
	case c.Shard < 0 && c.From != "all":
		return fmt.Errorf("consumer.from: %q: only a shard that is folded alone can begin elsewhere: set consumer.shard", c.From)
	case c.Checkpoint < 100*time.Millisecond:
		return fmt.Errorf("consumer.checkpoint: %s: use at least 100ms", c.Checkpoint)
	case c.PullMaxBytes < 2*maxBatchBytes:
		return fmt.Errorf("consumer.pull_max_bytes: %s: use at least %s, two of the largest messages", c.PullMaxBytes, 2*maxBatchBytes)
	case c.DisplayInterval < 0:
		return fmt.Errorf("consumer.display_interval: %s: use 0 or more", c.DisplayInterval)
	}
	_, _, err := c.Begin()
	return err
}

// Leak tunes the leak fold.
type Leak struct {
	KeepEnded time.Duration `koanf:"keep_ended" doc:"time an ended process stays in reports (0: for ever)"`
}

// Anomaly tunes the detectors.
type Anomaly struct {
	Warmup            time.Duration `koanf:"warmup" doc:"time after a process's start in which no size is an outlier"`
	AllocSizeCooldown time.Duration `koanf:"alloc_size_cooldown" doc:"time in which the same outlier again is no new alert"`
	OOMCooldown       time.Duration `koanf:"oom_cooldown" doc:"time in which the same failure again is no new alert"`
}

// Launch tunes the launch fold.
type Launch struct {
	Keep       time.Duration `koanf:"keep" doc:"time a process stays after its last launch (0: for ever)"`
	MaxKernels int           `koanf:"max_kernels" doc:"kernel names kept for each process"`
}

// Bandwidth tunes the bandwidth fold.
type Bandwidth struct {
	Keep time.Duration `koanf:"keep" doc:"time a process stays after its last copy (0: for ever)"`
}

// Metrics is where /metrics, /livez and /readyz are.
type Metrics struct {
	Addr string `koanf:"addr" doc:"address of /metrics, /livez and /readyz (port 0: any; empty: none)"`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `koanf:"level" doc:"debug, info, warn or error"`
	Format string `koanf:"format" doc:"text, json, or auto: text on a terminal"`
}

// Validate names a key that makes no sense.
func (l Log) Validate() error {
	switch l.Level {
	case "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("log.level: %q: use debug, info, warn or error", l.Level)
	}
	switch l.Format {
	case "auto", "text", "json":
	default:
		return fmt.Errorf("log.format: %q: use auto, text or json", l.Format)
	}
	return nil
}

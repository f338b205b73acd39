package config

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Consumer is the section that all consumers have.
type Consumer struct {
	Instance        string        `koanf:"instance"`
	Checkpoint      time.Duration `koanf:"checkpoint"`
	Shard           int           `koanf:"shard"`
	From            string        `koanf:"from"`
	PullMaxBytes    Bytes         `koanf:"pull_max_bytes"`
	DisplayInterval time.Duration `koanf:"display_interval" flag:"display-interval"`
}

// Begin parses From. onlyNew is for new, since for a time; for all both are zero.
func (c Consumer) Begin() (onlyNew bool, since time.Time, err error) {
	if c.From == "all" || c.From == "new" {
		return c.From == "new", time.Time{}, nil
	}
	if since, err = time.Parse(time.RFC3339, c.From); err != nil {
		err = fmt.Errorf("consumer.from: %q is not a start; use all, new or a time such as 2026-01-31T12:00:00Z",
			c.From)
	}
	return false, since, err
}

// badInstance matches characters that a key of a NATS bucket cannot have. A dot becomes an underscore.
var badInstance = regexp.MustCompile(`[^-_/=.a-zA-Z0-9]`)

func (c Consumer) Validate() error {
	switch {
	case badInstance.MatchString(c.Instance):
		return fmt.Errorf("consumer.instance: %q has other characters; use letters, digits, - and _", c.Instance)
	case c.Shard < -1:
		return fmt.Errorf("consumer.shard: %d is out of range; use 0 or more, or -1 for all shards", c.Shard)
	case c.Shard < 0 && c.From != "all":
		return fmt.Errorf("consumer.from: %q needs one shard; set consumer.shard too", c.From)
	case c.Checkpoint < 100*time.Millisecond:
		return fmt.Errorf("consumer.checkpoint: %s is too short; use at least 100ms", c.Checkpoint)
	case c.PullMaxBytes < 2*maxBatchBytes:
		return fmt.Errorf("consumer.pull_max_bytes: %s is too small; use at least %s, the size of two of the largest "+
			"messages", c.PullMaxBytes, 2*maxBatchBytes)
	}
	_, _, err := c.Begin()
	return err
}

// Launch is the section of the launch fold.
type Launch struct {
	Keep       time.Duration `koanf:"keep"`
	MaxKernels int           `koanf:"max_kernels"`
}

// Bandwidth is the section of the bandwidth fold.
type Bandwidth struct {
	Keep time.Duration `koanf:"keep"`
}

// Metrics is the section of the HTTP server of /metrics, /livez and /readyz.
type Metrics struct {
	Addr string `koanf:"addr" flag:"metrics-addr"`
}

// Log is the section of the log on standard error.
type Log struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

func (l Log) Validate() error {
	switch {
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, l.Level):
		return fmt.Errorf("log.level: unknown %q; use debug, info, warn or error", l.Level)
	case !slices.Contains([]string{"auto", "text", "json"}, l.Format):
		return fmt.Errorf("log.format: unknown %q; use auto, text or json", l.Format)
	}
	return nil
}

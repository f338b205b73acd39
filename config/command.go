package config

import (
	"fmt"
	"time"
)

// ProducerCommand is the configuration of gputap-producer.
type ProducerCommand struct {
	NATS     NATS     `koanf:"nats"`
	Producer Producer `koanf:"producer"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// LeakCommand is the configuration of gputap-leak.
type LeakCommand struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Leak     Leak     `koanf:"leak"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// AnomalyCommand is the configuration of gputap-anomaly.
type AnomalyCommand struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Anomaly  Anomaly  `koanf:"anomaly"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// LaunchCommand is the configuration of gputap-launch.
type LaunchCommand struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Launch   Launch   `koanf:"launch"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// BandwidthCommand is the configuration of gputap-bandwidth.
type BandwidthCommand struct {
	NATS      NATS      `koanf:"nats"`
	Consumer  Consumer  `koanf:"consumer"`
	Bandwidth Bandwidth `koanf:"bandwidth"`
	Metrics   Metrics   `koanf:"metrics"`
	Log       Log       `koanf:"log"`
}

// keepIdle is how long folds keep a process after its last event or its end.
const keepIdle = time.Hour

var (
	defaultNATS     = NATS{URL: "nats://127.0.0.1:4222"}
	defaultConsumer = Consumer{Shard: -1, Checkpoint: 10 * time.Second, From: "all", PullMaxBytes: 8 << 20}
	defaultLog      = Log{Level: "info", Format: "auto"}
)

// DefaultProducerCommand returns the configuration without any file, variable or flag.
func DefaultProducerCommand() ProducerCommand {
	return ProducerCommand{
		NATS: defaultNATS, Producer: DefaultProducer(), Metrics: Metrics{Addr: producerMetrics}, Log: defaultLog,
	}
}

// DefaultLeakCommand returns the configuration without any file, variable or flag.
func DefaultLeakCommand() LeakCommand {
	return LeakCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Leak: Leak{KeepEnded: keepIdle},
		Metrics: Metrics{Addr: leakMetrics}, Log: defaultLog,
	}
}

// DefaultAnomalyCommand returns the configuration without any file, variable or flag.
func DefaultAnomalyCommand() AnomalyCommand {
	return AnomalyCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Anomaly: Anomaly{OOMCooldown: 15 * time.Minute},
		Metrics: Metrics{Addr: anomalyMetrics},
		Log:     defaultLog,
	}
}

// DefaultLaunchCommand returns the configuration without any file, variable or flag.
func DefaultLaunchCommand() LaunchCommand {
	return LaunchCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Launch: Launch{Keep: keepIdle, MaxKernels: 10_000},
		Metrics: Metrics{Addr: launchMetrics},
		Log:     defaultLog,
	}
}

// DefaultBandwidthCommand returns the configuration without any file, variable or flag.
func DefaultBandwidthCommand() BandwidthCommand {
	return BandwidthCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Bandwidth: Bandwidth{Keep: keepIdle},
		Metrics: Metrics{Addr: bandwidthMetrics}, Log: defaultLog,
	}
}

// Default addresses of /metrics: one port for each program, so that all may run on one machine.
const (
	producerMetrics  = "127.0.0.1:9440"
	leakMetrics      = "127.0.0.1:9441"
	anomalyMetrics   = "127.0.0.1:9442"
	launchMetrics    = "127.0.0.1:9443"
	bandwidthMetrics = "127.0.0.1:9444"
)

// commands returns the defaults of all programs.
func commands() []any {
	return []any{
		DefaultProducerCommand(), DefaultLeakCommand(), DefaultAnomalyCommand(), DefaultLaunchCommand(),
		DefaultBandwidthCommand(),
		DefaultRunCommand(),
	}
}

// Validate names the first key with a wrong value.
func (c ProducerCommand) Validate() error { return first(c.NATS, c.Producer, c.Log) }

// Validate names the first key with a wrong value.
func (c LeakCommand) Validate() error {
	return first(c.NATS, c.Consumer, c.Log, notNegative{"leak.keep_ended", c.Leak.KeepEnded})
}

// Validate names the first key with a wrong value.
func (c AnomalyCommand) Validate() error {
	return first(c.NATS, c.Consumer, c.Log, notNegative{"anomaly.warmup", c.Anomaly.Warmup},
		notNegative{"anomaly.alloc_size_cooldown", c.Anomaly.AllocSizeCooldown},
		notNegative{"anomaly.oom_cooldown", c.Anomaly.OOMCooldown})
}

// Validate names the first key with a wrong value.
func (c LaunchCommand) Validate() error {
	if c.Launch.MaxKernels < 1 {
		return fmt.Errorf("launch.max_kernels: %d is too small; use 1 or more", c.Launch.MaxKernels)
	}
	return first(c.NATS, c.Consumer, c.Log, notNegative{"launch.keep", c.Launch.Keep})
}

// Validate names the first key with a wrong value.
func (c BandwidthCommand) Validate() error {
	return first(c.NATS, c.Consumer, c.Log, notNegative{"bandwidth.keep", c.Bandwidth.Keep})
}

// Sections returns the sections that every consumer program has.
func (c LeakCommand) Sections() (NATS, Consumer, Metrics, Log) {
	return c.NATS, c.Consumer, c.Metrics, c.Log
}

// Sections returns the sections that every consumer program has.
func (c AnomalyCommand) Sections() (NATS, Consumer, Metrics, Log) {
	return c.NATS, c.Consumer, c.Metrics, c.Log
}

// Sections returns the sections that every consumer program has.
func (c LaunchCommand) Sections() (NATS, Consumer, Metrics, Log) {
	return c.NATS, c.Consumer, c.Metrics, c.Log
}

// Sections returns the sections that every consumer program has.
func (c BandwidthCommand) Sections() (NATS, Consumer, Metrics, Log) {
	return c.NATS, c.Consumer, c.Metrics, c.Log
}

type validator interface{ Validate() error }

func first(sections ...validator) error {
	for _, s := range sections {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	return nil
}

type notNegative struct {
	key   string
	value time.Duration
}

func (n notNegative) Validate() error {
	if n.value < 0 {
		return fmt.Errorf("%s: %s is negative; use 0 or more", n.key, n.value)
	}
	return nil
}

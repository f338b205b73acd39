package config

import (
	"fmt"
	"time"
)

// ProducerCommand is everything gputap-producer reads.
type ProducerCommand struct {
	NATS     NATS     `koanf:"nats"`
	Producer Producer `koanf:"producer"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// LeakCommand is everything gputap-leak reads.
type LeakCommand struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Leak     Leak     `koanf:"leak"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// AnomalyCommand is everything gputap-anomaly reads.
type AnomalyCommand struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Anomaly  Anomaly  `koanf:"anomaly"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// LaunchCommand is everything gputap-launch reads.
type LaunchCommand struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Launch   Launch   `koanf:"launch"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// BandwidthCommand is everything gputap-bandwidth reads.
type BandwidthCommand struct {
	NATS      NATS      `koanf:"nats"`
	Consumer  Consumer  `koanf:"consumer"`
	Bandwidth Bandwidth `koanf:"bandwidth"`
	Metrics   Metrics   `koanf:"metrics"`
	Log       Log       `koanf:"log"`
}

// keepIdle is how long folds keep a process that has gone quiet or has ended.
const keepIdle = time.Hour

var (
	defaultNATS     = NATS{URL: "nats://127.0.0.1:4222"}
	defaultConsumer = Consumer{Shard: -1, Checkpoint: 10 * time.Second, From: "all", PullMaxBytes: 8 << 20}
	defaultMetrics  = Metrics{Addr: "127.0.0.1:0"} // several consumers share a machine
	defaultLog      = Log{Level: "info", Format: "auto"}
)

// DefaultProducerCommand is what an empty file means.
func DefaultProducerCommand() ProducerCommand {
	return ProducerCommand{NATS: defaultNATS, Producer: DefaultProducer(), Metrics: Metrics{Addr: "127.0.0.1:9401"}, Log: defaultLog}
}

// DefaultLeakCommand is what an empty file means.
func DefaultLeakCommand() LeakCommand {
	return LeakCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Leak: Leak{KeepEnded: keepIdle}, Metrics: defaultMetrics, Log: defaultLog,
	}
}

// DefaultAnomalyCommand is what an empty file means.
func DefaultAnomalyCommand() AnomalyCommand {
	return AnomalyCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Anomaly: Anomaly{OOMCooldown: 15 * time.Minute}, Metrics: defaultMetrics,
		Log: defaultLog,
	}
}

// DefaultLaunchCommand is what an empty file means.
func DefaultLaunchCommand() LaunchCommand {
	return LaunchCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Launch: Launch{Keep: keepIdle, MaxKernels: 10_000}, Metrics: defaultMetrics,
		Log: defaultLog,
	}
}

// DefaultBandwidthCommand is what an empty file means.
func DefaultBandwidthCommand() BandwidthCommand {
	return BandwidthCommand{
		NATS: defaultNATS, Consumer: defaultConsumer, Bandwidth: Bandwidth{Keep: keepIdle}, Metrics: defaultMetrics, Log: defaultLog,
	}
}

// commands are the roots of all commands: one file may serve them all.
func commands() []any {
	return []any{
		DefaultProducerCommand(), DefaultLeakCommand(), DefaultAnomalyCommand(), DefaultLaunchCommand(), DefaultBandwidthCommand(),
		DefaultRunCommand(),
	}
}

// Validate names the first key whose value makes no sense.
func (c ProducerCommand) Validate() error { return first(c.NATS, c.Producer, c.Log) }

// Validate names the first key whose value makes no sense.
func (c LeakCommand) Validate() error {
	return first(c.NATS, c.Consumer, c.Log, notNegative{"leak.keep_ended", c.Leak.KeepEnded})
}

// Validate names the first key whose value makes no sense.
func (c AnomalyCommand) Validate() error {
	return first(c.NATS, c.Consumer, c.Log, notNegative{"anomaly.warmup", c.Anomaly.Warmup},
		notNegative{"anomaly.alloc_size_cooldown", c.Anomaly.AllocSizeCooldown},
		notNegative{"anomaly.oom_cooldown", c.Anomaly.OOMCooldown})
}

// Validate names the first key whose value makes no sense.
func (c LaunchCommand) Validate() error {
	if c.Launch.MaxKernels < 1 {
		return fmt.Errorf("launch.max_kernels: %d: use 1 or more", c.Launch.MaxKernels)
	}
	return first(c.NATS, c.Consumer, c.Log, notNegative{"launch.keep", c.Launch.Keep})
}

// Validate names the first key whose value makes no sense.
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
			if _, ok := s.(Producer); ok {
				return fmt.Errorf("producer.%w", err) // its keys are also flags without a section, of gputap run
			}
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
		return fmt.Errorf("%s: %s: use 0 or more", n.key, n.value)
	}
	return nil
}

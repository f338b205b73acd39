package config

import (
	"cmp"
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

// ConsumerSections are the sections that every consumer program has.
type ConsumerSections struct {
	NATS     NATS     `koanf:"nats"`
	Consumer Consumer `koanf:"consumer"`
	Metrics  Metrics  `koanf:"metrics"`
	Log      Log      `koanf:"log"`
}

// LeakCommand is the configuration of gputap-leak.
type LeakCommand struct {
	ConsumerSections `koanf:",squash"`
	Leak             Leak `koanf:"leak"`
}

// AnomalyCommand is the configuration of gputap-anomaly.
type AnomalyCommand struct {
	ConsumerSections `koanf:",squash"`
	Anomaly          Anomaly `koanf:"anomaly"`
}

// LaunchCommand is the configuration of gputap-launch.
type LaunchCommand struct {
	ConsumerSections `koanf:",squash"`
	Launch           Launch `koanf:"launch"`
}

// BandwidthCommand is the configuration of gputap-bandwidth.
type BandwidthCommand struct {
	ConsumerSections `koanf:",squash"`
	Bandwidth        Bandwidth `koanf:"bandwidth"`
}

// producerMetrics is the default address of /metrics of gputap-producer and gputap run.
const producerMetrics = "127.0.0.1:9440"

// keepIdle is how long folds keep a process after its last event or its end.
const keepIdle = time.Hour

var (
	defaultNATS = NATS{URL: "nats://127.0.0.1:4222"}
	defaultLog  = Log{Level: "info", Format: "auto"}
)

// DefaultProducerCommand returns the configuration without any file, variable or flag.
func DefaultProducerCommand() ProducerCommand {
	return ProducerCommand{
		NATS: defaultNATS, Producer: DefaultProducer(), Metrics: Metrics{Addr: producerMetrics}, Log: defaultLog,
	}
}

// defaultConsumer returns the sections of a consumer program. Each has its own port for /metrics, so that all may run
// on one machine.
func defaultConsumer(port int) ConsumerSections {
	return ConsumerSections{
		NATS:     defaultNATS,
		Consumer: Consumer{Shard: -1, Checkpoint: 10 * time.Second, From: "all", PullMaxBytes: 8 << 20},
		Metrics:  Metrics{Addr: fmt.Sprint("127.0.0.1:", port)}, Log: defaultLog,
	}
}

// DefaultLeakCommand returns the configuration without any file, variable or flag.
func DefaultLeakCommand() LeakCommand {
	return LeakCommand{defaultConsumer(9441), DefaultLeak()}
}

// DefaultAnomalyCommand returns the configuration without any file, variable or flag.
func DefaultAnomalyCommand() AnomalyCommand {
	return AnomalyCommand{defaultConsumer(9442), DefaultAnomaly()}
}

// DefaultLaunchCommand returns the configuration without any file, variable or flag.
func DefaultLaunchCommand() LaunchCommand {
	return LaunchCommand{defaultConsumer(9443), Launch{Keep: keepIdle, MaxKernels: 10_000}}
}

// DefaultBandwidthCommand returns the configuration without any file, variable or flag.
func DefaultBandwidthCommand() BandwidthCommand {
	return BandwidthCommand{defaultConsumer(9444), Bandwidth{Keep: keepIdle}}
}

// commands returns the defaults of all programs.
func commands() []any {
	return []any{
		DefaultProducerCommand(), DefaultLeakCommand(), DefaultAnomalyCommand(), DefaultLaunchCommand(),
		DefaultBandwidthCommand(), DefaultRunCommand(),
	}
}

// Sections returns the sections that every consumer program has.
func (c ConsumerSections) Sections() (NATS, Consumer, Metrics, Log) {
	return c.NATS, c.Consumer, c.Metrics, c.Log
}

func (c ConsumerSections) Validate() error {
	return cmp.Or(c.NATS.Validate(), c.Consumer.Validate(), c.Log.Validate())
}

func (c ProducerCommand) Validate() error {
	return cmp.Or(c.NATS.Validate(), c.Producer.Validate(), c.Log.Validate())
}

func (c LeakCommand) Validate() error {
	return cmp.Or(c.Leak.Validate(), c.ConsumerSections.Validate())
}

func (c AnomalyCommand) Validate() error {
	return cmp.Or(c.Anomaly.Validate(), c.ConsumerSections.Validate())
}

func (c LaunchCommand) Validate() error {
	if c.Launch.MaxKernels < 1 {
		return fmt.Errorf("launch.max_kernels: %d is too small; use 1 or more", c.Launch.MaxKernels)
	}
	return c.ConsumerSections.Validate()
}

package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// Producer is the section of the host agent gputap-producer, which gputap run contains too.
type Producer struct {
	Cluster        string        `koanf:"cluster"`
	Host           string        `koanf:"host"`
	Features       []string      `koanf:"features" flag:"features"`
	Libraries      []string      `koanf:"libraries" flag:"library"`
	ScanInterval   time.Duration `koanf:"scan_interval"`
	Uprobes        string        `koanf:"uprobes"`
	UnsafeReturns  bool          `koanf:"unsafe_return_probes" flag:"unsafe-return-probes"`
	Shards         int           `koanf:"shards"`
	BatchEvents    int           `koanf:"batch_events"`
	BatchBytes     Bytes         `koanf:"batch_bytes"`
	BatchMaxBytes  Bytes         `koanf:"batch_max_bytes"`
	BatchAge       time.Duration `koanf:"batch_age"`
	SpoolBytes     Bytes         `koanf:"spool_bytes"`
	Outbox         string        `koanf:"outbox" flag:"outbox"`
	OutboxMaxBytes Bytes         `koanf:"outbox_max_bytes" flag:"outbox-max-bytes"`
	RingBytes      Bytes         `koanf:"ring_bytes"`
	Heartbeat      time.Duration `koanf:"heartbeat"`
	DrainTimeout   time.Duration `koanf:"drain_timeout"`
	Jobs           bool          `koanf:"jobs"`
	Filter         Filter        `koanf:"filter"`
}

// Values of Uprobes.
const (
	UprobesAuto  = "auto"
	UprobesMulti = "multi"
	UprobesPerf  = "perf"
)

// DefaultProducer returns the section without any file, variable or flag.
func DefaultProducer() Producer {
	return Producer{
		Cluster: "default", Features: []string{"memory", "launch", "copy"}, ScanInterval: time.Second,
		Uprobes:     UprobesAuto,
		BatchEvents: 4096, BatchBytes: 128 << 10, BatchMaxBytes: 512 << 10, BatchAge: 50 * time.Millisecond,
		SpoolBytes: 64 << 20, OutboxMaxBytes: 4 << 30, RingBytes: 32 << 20, Heartbeat: 10 * time.Second,
		DrainTimeout: 10 * time.Second, Jobs: true,
	}
}

// TorchFeature is the word for tensors, the blocks of PyTorch's allocator.
const TorchFeature = "torch"

var features = map[string]schema.Kind{
	"memory": schema.KindMemory, "launch": schema.KindLaunch, "copy": schema.KindCopy, "sync": schema.KindSync,
	TorchFeature: schema.KindTensor,
}

// Kinds parses Features.
func (p Producer) Kinds() ([]schema.Kind, error) {
	var kinds []schema.Kind
	for _, f := range p.Features {
		kind, known := features[strings.TrimSpace(f)]
		if !known {
			return nil, fmt.Errorf("producer.features: unknown %q; use memory, launch, copy, sync, torch", f)
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return nil, errors.New("producer.features: empty; use one or more of memory, launch, copy, sync, torch")
	}
	return kinds, nil
}

const (
	minBatchBytes = Bytes(4 << 10)
	maxBatchBytes = Bytes(1 << 20)  // largest message that NATS takes by default
	minRingBytes  = Bytes(4 << 20)  // bpf.MinRingBytes
	maxRingBytes  = Bytes(16 << 30) // as scale tests on 32 CPUs need, where each ring holds a whole run
	minOutbox     = Bytes(64 << 20) // room for the batches in flight of every kind
)

func (p Producer) Validate() error {
	if _, err := p.Kinds(); err != nil {
		return err
	}
	switch {
	case p.Cluster == "":
		return errors.New("producer.cluster: empty; set the name of the cluster")
	case p.Uprobes != UprobesAuto && p.Uprobes != UprobesMulti && p.Uprobes != UprobesPerf:
		return fmt.Errorf("producer.uprobes: unknown %q; use auto, multi or perf", p.Uprobes)
	case p.Shards < 0 || p.Shards > schema.MaxShards:
		return fmt.Errorf("producer.shards: %d is out of range; use 0 to %d", p.Shards, schema.MaxShards)
	case p.BatchEvents < 1 || p.BatchEvents > schema.MaxEvents:
		return fmt.Errorf("producer.batch_events: %d is out of range; use 1 to %d", p.BatchEvents, schema.MaxEvents)
	case p.RingBytes < minRingBytes || p.RingBytes > maxRingBytes:
		return fmt.Errorf("producer.ring_bytes: %s is out of range; use %s to %s",
			p.RingBytes, minRingBytes, maxRingBytes)
	case p.BatchBytes < minBatchBytes || p.BatchBytes > p.BatchMaxBytes:
		return fmt.Errorf("producer.batch_bytes: %s is out of range; use %s to producer.batch_max_bytes (%s)",
			p.BatchBytes, minBatchBytes, p.BatchMaxBytes)
	case p.BatchMaxBytes > maxBatchBytes:
		return fmt.Errorf("producer.batch_max_bytes: %s is out of range; use at most %s", p.BatchMaxBytes,
			maxBatchBytes)
	case p.SpoolBytes < p.BatchMaxBytes:
		return fmt.Errorf("producer.spool_bytes: %s is out of range; use at least producer.batch_max_bytes (%s)",
			p.SpoolBytes, p.BatchMaxBytes)
	case p.OutboxMaxBytes < minOutbox:
		return fmt.Errorf("producer.outbox_max_bytes: %s is out of range; use at least %s", p.OutboxMaxBytes, minOutbox)
	case p.Outbox != "" && !filepath.IsAbs(p.Outbox):
		return fmt.Errorf("producer.outbox: %q is a relative path; use an absolute path such as /var/lib/gputap/outbox",
			p.Outbox)
	}
	return cmp.Or(checkDurations(p, "producer.", time.Millisecond, "too short; use at least 1ms"), p.Filter.Validate())
}

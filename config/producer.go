package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// Producer is the section of the host agent.
type Producer struct {
	Cluster          string        `koanf:"cluster" doc:"name of the cluster this host belongs to"`
	Host             string        `koanf:"host" doc:"name of this host (default: its hostname)"`
	Features         []string      `koanf:"features" flag:"features" doc:"what to watch: memory, launch, copy, sync"`
	Libraries        []string      `koanf:"libraries" flag:"library" doc:"driver libraries to watch besides those found"`
	ScanInterval     time.Duration `koanf:"scan_interval" doc:"time between looks for libraries that processes have mapped"`
	Uprobes          string        `koanf:"uprobes" doc:"how to attach: auto, multi (a link for each program, Linux 6.6), perf (an event for each symbol)"`
	UnsafeReturns    bool          `koanf:"unsafe_return_probes" flag:"unsafe-return-probes" doc:"probe returns even where that ends programs under seccomp (Linux 6.11 to 6.13)"`
	Shards           int           `koanf:"shards" doc:"shards that the bus must have, or this host does not publish (0: whatever it has)"`
	BatchEvents      int           `koanf:"batch_events" doc:"events at which a batch is closed"`
	BatchBytes       Bytes         `koanf:"batch_bytes" doc:"bytes at which a batch is closed"`
	BatchMaxBytes    Bytes         `koanf:"batch_max_bytes" doc:"bytes to which a batch may grow while the one before is not acked"`
	BatchAge         time.Duration `koanf:"batch_age" doc:"age at which a batch is closed, and the longest wait of the reader"`
	SpoolBytes       Bytes         `koanf:"spool_bytes" doc:"bytes of batches kept in memory while the bus is away"`
	Outbox           string        `koanf:"outbox" flag:"outbox" doc:"directory where batches are kept until they are acked, over restarts too; empty: in memory only"`
	OutboxMaxBytes   Bytes         `koanf:"outbox_max_bytes" flag:"outbox-max-bytes" doc:"bytes that the outbox may take; beyond it the oldest launches go first, memory events last"`
	ControlRingBytes Bytes         `koanf:"control_ring_bytes" doc:"ring of memory, process and name records, one for the host"`
	BulkRingBytes    Bytes         `koanf:"bulk_ring_bytes" doc:"ring of launches and copies, one for each CPU; 0: 8 MiB, less on more than 32 CPUs"`
	Heartbeat        time.Duration `koanf:"heartbeat" doc:"time between the host's own batches"`
	DrainTimeout     time.Duration `koanf:"drain_timeout" doc:"time that the last batches may take at the end"`
	Filter           Filter        `koanf:"filter"`
}

// Ways to attach.
const (
	UprobesAuto  = "auto"
	UprobesMulti = "multi"
	UprobesPerf  = "perf"
)

// DefaultProducer is what an empty file means.
func DefaultProducer() Producer {
	return Producer{
		Cluster: "default", Features: []string{"memory", "launch", "copy"}, ScanInterval: time.Second, Uprobes: UprobesAuto,
		BatchEvents: 4096, BatchBytes: 128 << 10, BatchMaxBytes: 512 << 10, BatchAge: 50 * time.Millisecond,
		SpoolBytes: 64 << 20, OutboxMaxBytes: 4 << 30, ControlRingBytes: 8 << 20, Heartbeat: 10 * time.Second,
		DrainTimeout: 10 * time.Second,
	}
}

// Kinds parses Features.
func (p Producer) Kinds() ([]schema.Kind, error) {
	var kinds []schema.Kind
	for _, f := range p.Features {
		switch kind := schema.ParseKind(strings.TrimSpace(f)); kind {
		case schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync:
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		default:
			return nil, fmt.Errorf("features: unknown %q: use memory, launch, copy, sync", f)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("features: none given: use memory, launch, copy, sync")
	}
	return kinds, nil
}

const (
	minBatchBytes = Bytes(4 << 10)
	maxBatchBytes = Bytes(1 << 20) // NATS's own limit of a message
	maxRingBytes  = Bytes(1 << 30)
	minOutbox     = Bytes(64 << 20) // room for what is in flight of every kind
)

// Validate names the first key whose value makes no sense.
func (p Producer) Validate() error {
	if _, err := p.Kinds(); err != nil {
		return err
	}
	switch {
	case p.Cluster == "":
		return fmt.Errorf("cluster: empty: give this cluster a name")
	case p.Uprobes != UprobesAuto && p.Uprobes != UprobesMulti && p.Uprobes != UprobesPerf:
		return fmt.Errorf("uprobes: %q: use auto, multi or perf", p.Uprobes)
	case p.Shards < 0 || p.Shards > schema.MostShards:
		return fmt.Errorf("shards: %d: use 0 to %d", p.Shards, schema.MostShards)
	case p.BatchEvents < 1 || p.BatchEvents > schema.MaxEvents:
		return fmt.Errorf("batch_events: %d: use 1 to %d", p.BatchEvents, schema.MaxEvents)
	case p.BatchBytes < minBatchBytes || p.BatchBytes > p.BatchMaxBytes:
		return fmt.Errorf("batch_bytes: %s: use %s to batch_max_bytes (%s)", p.BatchBytes, minBatchBytes, p.BatchMaxBytes)
	case p.BatchMaxBytes > maxBatchBytes:
		return fmt.Errorf("batch_max_bytes: %s: use at most %s", p.BatchMaxBytes, maxBatchBytes)
	case p.SpoolBytes < p.BatchMaxBytes:
		return fmt.Errorf("spool_bytes: %s: use at least batch_max_bytes (%s)", p.SpoolBytes, p.BatchMaxBytes)
	case p.OutboxMaxBytes < minOutbox:
		return fmt.Errorf("outbox_max_bytes: %s: use at least %s", p.OutboxMaxBytes, minOutbox)
	case p.Outbox != "" && !filepath.IsAbs(p.Outbox):
		return fmt.Errorf("outbox: %q: use a path from the root, as /var/lib/gputap/outbox", p.Outbox)
	case p.ControlRingBytes < 1 || p.ControlRingBytes > maxRingBytes:
		return fmt.Errorf("control_ring_bytes: %s: use 1 to %s", p.ControlRingBytes, maxRingBytes)
	case p.BulkRingBytes < 0 || p.BulkRingBytes > maxRingBytes:
		return fmt.Errorf("bulk_ring_bytes: %s: use 0 to %s", p.BulkRingBytes, maxRingBytes)
	}
	for key, d := range map[string]time.Duration{
		"scan_interval": p.ScanInterval, "batch_age": p.BatchAge, "heartbeat": p.Heartbeat, "drain_timeout": p.DrainTimeout,
	} {
		if d < time.Millisecond {
			return fmt.Errorf("%s: %s: use at least 1ms", key, d)
		}
	}
	return p.Filter.Validate()
}

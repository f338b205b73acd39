package producer

import (
	"strings"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
)

// TestLeastRingBytes expects that the configuration accepts the least budget of the loader, and no smaller one.
func TestLeastRingBytes(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultProducer()
	cfg.RingBytes = bpf.MinRingBytes
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.RingBytes--
	err := cfg.Validate()
	least := config.Bytes(bpf.MinRingBytes).String()
	if err == nil || !strings.Contains(err.Error(), "producer.ring_bytes") || !strings.Contains(err.Error(), least) {
		t.Errorf("%d bytes: %v, want an error with producer.ring_bytes and %s", cfg.RingBytes, err, least)
	}
}

package config

import (
	"testing"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "107374182400": 107374182400, "64GiB": 64 << 30, "64 gib": 64 << 30, "1.5TB": 15e11,
		"10MB": 1e7, "7b": 7,
		"4GiB": 4 << 30, "64MiB": 64 << 20, "100GB": 100e9,
		"9223372036854775807": 1<<63 - 1,
	} {
		if got, err := ParseBytes(text); got != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseBytes(want.String()); again != want || err != nil {
			t.Errorf("%d is written %q, which is %d, %v", want, want.String(), again, err)
		}
	}
	for _, text := range []string{"", " ", "GiB", "-1", "1e3", "0x10", "10XB", "8EiB", "9223372036854775808",
		"99999999PiB", "1..5GiB", "NaN", "+1", "1 2", "1,5GiB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
	for n, want := range map[Bytes]string{0: "0", 1023: "1023", 1 << 10: "1KiB", 1<<30 + 1: "1073741825",
		1536 << 20: "1536MiB", 4 << 30: "4GiB", 100e9: "100GB", 1000: "1000"} {
		if n.String() != want {
			t.Errorf("%d is written %q, want %q", n, n.String(), want)
		}
	}
}

// TestBytesHaveUnits sets numbers of bytes with and without units in a file, a variable and a flag.
func TestBytesHaveUnits(t *testing.T) {
	t.Setenv("GPUTAP_PRODUCER__SPOOL_BYTES", "1GiB")
	file := write(t, "producer:\n  outbox_max_bytes: 100GB\n  batch_bytes: 8192\n  ring_bytes: 16MiB\n")
	cfg, err := Load("x", []string{"--config", file, "--producer.ring_bytes", "8 MiB"}, DefaultProducerCommand())
	if p := cfg.Producer; err != nil || p.SpoolBytes != 1<<30 || p.OutboxMaxBytes != 100e9 ||
		p.BatchBytes != 8192 || p.RingBytes != 8<<20 {
		t.Errorf("%+v, %v", cfg.Producer, err)
	}
	consumer, err := Load("x", []string{"--consumer.pull_max_bytes=3MiB"}, DefaultLeakCommand())
	if err != nil || consumer.Consumer.PullMaxBytes != 3<<20 {
		t.Errorf("%+v, %v", consumer.Consumer, err)
	}
}

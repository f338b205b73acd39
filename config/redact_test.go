package config

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"dial nats://bus:4222: refused":    "dial nats://bus:4222: refused",
		"at nats://me:pw@a:1, b@c is gone": "at nats://me:xxxxx@c is gone", // hides more than it must
		"at nats://me:xxxxx@a:1":           "at nats://me:xxxxx@a:1",
		`"nats://t0ken@a"`:                 `"nats://xxxxx@a"`,
		"nats://me:pw@a,tls://t0ken@b:2":   "nats://me:xxxxx@a,tls://xxxxx@b:2",
		`"nats://me:pw@a" is no number: parsing "nats://me:pw@a"`: `"nats://me:xxxxx@a" is no number: parsing "nats://me:xxxxx@a"`,
		`-nats.url=nats://me:p@ss:/"w w\"://@a`:                   "-nats.url=nats://me:xxxxx@a",
		`unexpected argument "me:pw@a:4222"`:                      `unexpected argument "me:xxxxx@a:4222"`,
		`"nats://a:1?token=pw" and tls://a/pw#x`:                  `"nats://a:1?xxxxx" and tls://a/xxxxx`,
		"wss://a/ is taken, ws://a/pw not":                        "wss://a/ is taken, ws://a/xxxxx not",
		"serve on http://127.0.0.1:9401/metrics":                  "serve on http://127.0.0.1:9401/metrics",
		"filter.cgroup: /user.slice/user@1000.service":            "filter.cgroup: /user.slice/user@1000.service",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%s\nis %s\nwant %s", text, got, want)
		}
	}
}

// TestMisplacedSecretIsHidden types a secret into the wrong places. Neither errors nor the printed configuration show
// it.
func TestMisplacedSecretIsHidden(t *testing.T) {
	t.Chdir(t.TempDir())
	const typed = "nats://me:S3CRET@127.0.0.1:1"
	for _, args := range [][]string{
		{"-nats.url=" + typed}, {"--nats.url=", typed}, {typed}, {"me:S3CRET@127.0.0.1:1"}, {"--log.level", typed},
		{"--consumer.from", typed},
		{"--consumer.shard", typed}, {"--config", typed}, {"--nats.url", "nats://h?token=S3CRET"},
		{"--nats.url", "nats://a,b/S3CRET"},
		{"--nats.url", "nats://h#S3CRET"}, {"--metrics.interval", typed}, {"--leak.keep_ended", typed},
		{"--consumer.pull_max_bytes", typed},
	} {
		_, err := Load("gputap-leak", args, DefaultLeakCommand())
		if err == nil || strings.Contains(Redact(err.Error()), "S3CRET") {
			t.Errorf("%q gives %v", args, err)
		}
	}
	cfg := DefaultLeakCommand()
	cfg.NATS = NATS{URL: "wss://h/S3CRET", Name: typed, CredsFile: typed, InboxPrefix: typed}
	cfg.Metrics.Addr, cfg.Consumer.Instance = typed, typed
	producer := DefaultProducerCommand()
	producer.Producer.Libraries = []string{"/a", typed}
	var out strings.Builder
	if err := Print(&out, cfg); err != nil {
		t.Fatal(err)
	}
	if err := Print(&out, producer); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "S3CRET") || strings.Count(out.String(), "nats://me:xxxxx@127.0.0.1:1") != 6 {
		t.Errorf("printed\n%s", out.String())
	}
	for _, url := range []string{"nats://a:4222/", "ws://a/nats?x=y", "a"} {
		if err := (NATS{URL: url}).Validate(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

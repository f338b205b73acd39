package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func write(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "gputap.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLaterSourceOverridesEarlier(t *testing.T) {
	path := write(t, "nats:\n  url: nats://file:1\n  name: file\nproducer:\n  cluster: file\n  batch_age: 70ms\n"+
		"  features: [memory]\n")
	t.Setenv("GPUTAP_NATS__NAME", "env")
	t.Setenv("GPUTAP_PRODUCER__CLUSTER", "env")
	t.Setenv("GPUTAP_PRODUCER__LIBRARIES", "/a,/b")
	t.Setenv("GPUTAP_REQUIRE_BPF", "1") // a test's switch, no key
	cfg, err := Load("x", []string{"--config", path, "--producer.cluster", "flag"}, DefaultProducerCommand())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.NATS.URL != "nats://file:1" || cfg.NATS.Name != "env" || cfg.Producer.Cluster != "flag" {
		t.Errorf("url %s, name %s, cluster %s; want file, env, flag", cfg.NATS.URL, cfg.NATS.Name, cfg.Producer.Cluster)
	}
	if cfg.Producer.BatchAge != 70*time.Millisecond || !slices.Equal(cfg.Producer.Features, []string{"memory"}) {
		t.Errorf("batch age %s, features %v", cfg.Producer.BatchAge, cfg.Producer.Features)
	}
	if !slices.Equal(cfg.Producer.Libraries, []string{"/a", "/b"}) {
		t.Errorf("libraries %v", cfg.Producer.Libraries)
	}
	if cfg.Producer.SpoolBytes != 64<<20 {
		t.Errorf("spool of %d bytes, want the default", cfg.Producer.SpoolBytes)
	}
}

func TestErrorNamesKeyAndRemedy(t *testing.T) {
	tests := []struct {
		name string
		file string
		env  map[string]string
		args []string
		want string
	}{
		{name: "unknown key in the file", file: "producer:\n  clutser: x\n",
			want: "gputap.yaml: unknown key producer.clutser: did you mean producer.cluster?"},
		{name: "unknown variable", env: map[string]string{"GPUTAP_NATS__UURL": "x"},
			want: "variable GPUTAP_NATS__UURL: unknown key nats.uurl: did you mean nats.url?"},
		{name: "two documents", file: "---\nproducer:\n  shards: 1\n---\n---\nproducer:\n  shards: 2\n",
			want: "gputap.yaml: the file has a second document after ---"},
		{name: "broken second document", file: "nats:\n---\nnats: [", want: "read configuration file"},
		{name: "key with dots", file: "nats.tls.ca_file: x\n",
			want: "gputap.yaml: key nats.tls.ca_file has dots; in a file write nats: {tls: {ca_file: …}}"},
		{name: "key with a dot in a section", file: "producer:\n  filter.comm: x\n",
			want: "key filter.comm has dots; in a file write filter: {comm: …}"},
		{name: "section with a typing mistake", file: "nuts:\n  url: x\n", want: "did you mean nats.url?"},
		{name: "unknown key", file: "gpus:\n  count: 1\n",
			want: "gputap.yaml: unknown key gpus.count: --help lists the keys"},
		{name: "amount with a decimal comma", args: []string{"--producer.spool_bytes=1,5GiB"},
			want: `"1,5GiB" is not a number of bytes`},
		{name: "duration of words", file: "producer:\n  heartbeat: soon\n",
			want: `producer.heartbeat: expected a duration, got "soon"`},
		{name: "section that is a value", file: "nats: here\n", want: "nats"},
		{name: "unknown flag", args: []string{"--nats.uri=x"}, want: "--nats.uri"},
		{name: "argument", args: []string{"now"}, want: `unexpected argument "now"`},
		{name: "no number", file: "producer:\n  shards: many\n",
			want: `producer.shards: expected a whole number, got "many"`},
		{name: "duration without a unit", file: "producer:\n  heartbeat: 10\n",
			want: "producer.heartbeat: expected a duration, got 10 without a unit"},
		{name: "fraction of a shard", file: "producer:\n  shards: 1.9\n",
			want: "producer.shards: expected a whole number, got 1.9"},
		{name: "bool for a number", file: "producer:\n  shards: true\n",
			want: "producer.shards: expected a whole number, got true"},
		{name: "number for a host", file: "producer:\n  host: 0123\n",
			want: "producer.host: expected a string, got a number; put it in quotes"},
		{name: "bool for a host", file: "producer:\n  host: true\n", want: "put it in quotes"},
		{name: "number for a name", file: "producer:\n  filter:\n    comm: [1.10]\n", want: "put it in quotes"},
		{name: "unknown feature", args: []string{"--producer.features=memory,lauch"}, want: `unknown "lauch"`},
		{name: "spool smaller than a batch", args: []string{"--producer.spool_bytes=1"}, want: "spool_bytes: 1"},
		{name: "small outbox", args: []string{"--outbox=/a", "--outbox-max-bytes=1000"},
			want: "producer.outbox_max_bytes: 1000 is out of range; use at least 64MiB"},
		{name: "relative outbox", args: []string{"--outbox=a"}, want: `producer.outbox: "a" is a relative path`},
		{name: "unknown uprobes", args: []string{"--producer.uprobes=fast"},
			want: `producer.uprobes: unknown "fast"; use auto, multi or perf`},
		{name: "token behind a server", args: []string{"--nats.url=nats://a,nats://b?token=x"},
			want: "nats.url, server 2: unexpected text after the port"},
		{name: "no server", args: []string{"--nats.url=,"}, want: "nats.url: empty"},
		{name: "another protocol", args: []string{"--nats.url=nats://a,http://b"},
			want: `nats.url, server 2: not a NATS URL: "http://b"; use nats://`},
		{name: "no such port", args: []string{"--nats.url=localhost:99999"},
			want: `nats.url, server 1: port "99999" is out of range`},
		{name: "port zero", args: []string{"--nats.url=nats://a:0"},
			want: `nats.url, server 1: port "0" is out of range`},
		{name: "half a certificate", args: []string{"--nats.tls.cert_file=c"}, want: "nats.tls.key_file"},
		{name: "age of zero", args: []string{"--producer.batch_age=0s"}, want: "batch_age"},
		{name: "not YAML", file: "nats: [", want: "read configuration file"},
		{name: "list of servers", file: "nats:\n  url: [nats://a, nats://b]\n",
			want: "nats.url: expected a string, got a list; write one string with commas"},
		{name: "pid of zero", args: []string{"--filter.pid=0"},
			want: `producer.filter.pid: "0" is not valid; use the pid of a running process`},
		{name: "pid by name", file: "producer:\n  filter:\n    pid: [12, python]\n", want: `filter.pid: "python"`},
		{name: "an empty number", env: map[string]string{"GPUTAP_PRODUCER__SHARDS": ""},
			want: "expected a value, got nothing"},
		{name: "an empty amount", env: map[string]string{"GPUTAP_PRODUCER__BATCH_BYTES": ""},
			want: "expected a value, got nothing"},
		{name: "user with a space", env: map[string]string{"GPUTAP_PRODUCER__FILTER__UID": "1000,a b"},
			want: `filter.uid: "a b"`},
		{name: "11 digits", args: []string{"--producer.filter.container=0123456789a"},
			want: `filter.container: "0123456789a"`},
		{name: "65 digits", args: []string{"--filter.container=" + strings.Repeat("a", 65)},
			want: "12 or more of its first digits"},
		{name: "relative cgroup", args: []string{"--filter.cgroup=system.slice/x.service"},
			want: "an absolute path in the hierarchy"},
		{name: "cgroup outside the hierarchy", args: []string{"--filter.cgroup=/../x"}, want: "filter.cgroup"},
		{name: "pattern of names", args: []string{"--filter.comm=python*"},
			want: `filter.comm: "python*" is not valid; use the whole name of a process, not a pattern`},
		{name: "too many names", args: []string{"--filter.comm=" + strings.Repeat("x,", 1024) + "x"},
			want: "filter.comm: 1025 entries are too many; use at most 1024"},
		{name: "log level", args: []string{"--log.level=loud"}, want: `log.level: unknown "loud"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			args := tt.args
			if tt.file != "" {
				args = append(args, "--config", write(t, tt.file))
			}
			_, err := Load("x", args, DefaultProducerCommand())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for _, root := range commands() {
		if err := root.(validator).Validate(); err != nil {
			t.Errorf("%T: %v", root, err)
		}
	}
}

func TestOneFileServesAllPrograms(t *testing.T) {
	path := write(t, "# one document\n---\nlog:\nnats:\n  name:\n  url: nats://file:1\nproducer:\n  cluster: c\n"+
		"anomaly:\n  warmup: 3s\nleak:\n  keep_ended: 5s\n---\n# and its end\n")
	t.Setenv("GPUTAP_PRODUCER__HOST", "h")
	for _, ignored := range []string{
		"GPUTAP_LEAK_PORT", // Kubernetes makes it of a service gputap-leak
		"GPUTAP_NATS_URL", "GPUTAP_OUTBOX", "GPUTAP_METRICS_ADDR", "GPUTAP_CONFIG",
	} {
		t.Setenv(ignored, "tcp://10.0.0.1:80")
	}
	cfg, err := Load("x", []string{"--config", path}, DefaultLeakCommand())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.NATS.URL != "nats://file:1" || cfg.Leak.KeepEnded != 5*time.Second {
		t.Errorf("url %s, keep_ended %s", cfg.NATS.URL, cfg.Leak.KeepEnded)
	}
}

func TestShortFlags(t *testing.T) {
	cfg, err := Load("x", []string{"--features=memory", "--library=/a", "--library", "/b", "--unsafe-return-probes"},
		DefaultProducerCommand())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cfg.Producer.Features, []string{"memory"}) || !slices.Equal(cfg.Producer.Libraries,
		[]string{"/a", "/b"}) {
		t.Errorf("features %v, libraries %v", cfg.Producer.Features, cfg.Producer.Libraries)
	}
	if !cfg.Producer.UnsafeReturns {
		t.Error("a flag without a value is not true")
	}
	cfg, err = Load("x", []string{"--outbox", "/var/lib/gputap/outbox", "--outbox-max-bytes=1000000000"},
		DefaultProducerCommand())
	if p := cfg.Producer; err != nil || p.Outbox != "/var/lib/gputap/outbox" || p.OutboxMaxBytes != 1e9 {
		t.Errorf("outbox %q of %d bytes: %v", p.Outbox, p.OutboxMaxBytes, err)
	}
}

func TestFilter(t *testing.T) {
	path := write(t, "producer:\n  filter:\n    pid: [12, 13]\n    uid: [1000, ann]\n    comm: python3\n")
	t.Setenv("GPUTAP_PRODUCER__FILTER__CGROUP", "/system.slice,slurmstepd.scope")
	cfg, err := Load("x", []string{"--config", path, "--filter.comm=a b,c", "--filter.container", "0123456789AB"},
		DefaultProducerCommand())
	if err != nil {
		t.Fatal(err)
	}
	const want = "comm=a b,c pid=12,13 uid=1000,ann container=0123456789AB cgroup=/system.slice,slurmstepd.scope"
	if got := cfg.Producer.Filter.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	cfg, err = Load("x", []string{"--config", write(t, "producer: {filter: {pid: 12, uid: '007'}}")},
		DefaultProducerCommand())
	if got := cfg.Producer.Filter.String(); err != nil ||
		got != "pid=12 uid=007 cgroup=/system.slice,slurmstepd.scope" {
		t.Errorf("one entry, and one in quotes: %s, %v", got, err)
	}
	if got := DefaultProducer().Filter.String(); got != "" {
		t.Errorf("by default %s", got)
	}
}

func TestConsumerStart(t *testing.T) {
	for from, want := range map[string]bool{"all": false, "new": true, "2026-01-31T12:00:00Z": false} {
		onlyNew, since, err := Consumer{From: from}.Begin()
		if err != nil || onlyNew != want || since.IsZero() == (from == "2026-01-31T12:00:00Z") {
			t.Errorf("%s: new %v, since %v, %v", from, onlyNew, since, err)
		}
	}
	file := write(t, "consumer: {shard: 1, from: 2026-01-31T12:00:00.5+01:00}")
	if cfg, err := Load("x", []string{"--config", file}, DefaultLeakCommand()); err != nil ||
		cfg.Consumer.From != "2026-01-31T12:00:00.5+01:00" {
		t.Errorf("from %q, %v", cfg.Consumer.From, err)
	}
	if _, err := Load("x", []string{"--consumer.from=yesterday"}, DefaultLeakCommand()); err == nil ||
		!strings.Contains(err.Error(), "consumer.from") {
		t.Errorf("got %v", err)
	}
}

func TestInstanceNames(t *testing.T) {
	for instance, ok := range map[string]bool{
		"": true, "leak-2_b": true, "gpu-7.example": true, "default/pod=1": true, "pod:1": false, "gpü-7": false,
		"it's": false, "GPU+1": false, "a b": false,
	} {
		_, err := Load("x", []string{"--consumer.instance=" + instance}, DefaultLeakCommand())
		if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "consumer.instance") {
			t.Errorf("%q gives %v", instance, err)
		}
	}
}

func TestPrintedFileLoadsTheSame(t *testing.T) {
	cfg := DefaultProducerCommand()
	cfg.NATS.URL = "nats://me:secret@a:1, nats://token@b:2"
	cfg.Producer.Features, cfg.Producer.Libraries = []string{"memory", "copy"}, []string{"/a b", "/c"}
	cfg.Producer.Filter = Filter{
		Comm: []string{"python3", "a b"}, PID: []string{"12"}, UID: []string{"1000", "ann"},
		Container: []string{"0123456789ab"}, Cgroup: []string{"/system.slice", "slurmstepd.scope"},
	}
	var out strings.Builder
	if err := Print(&out, cfg); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret", "token"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is printed", secret)
		}
	}
	cfg.NATS.URL = "nats://a:1"
	out.Reset()
	if err := Print(&out, cfg); err != nil {
		t.Fatal(err)
	}
	again, err := Load("x", []string{"--config", write(t, out.String())}, DefaultProducerCommand())
	if err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	if !reflect.DeepEqual(again, cfg) {
		t.Errorf("read back\n%+v, want\n%+v", again, cfg)
	}
	if !strings.Contains(out.String(),
		"batch_age: 50ms # age at which a batch is closed; the reader waits at most as long") {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestEveryKeyIsDocumentedAndAFlag(t *testing.T) {
	used := map[string]bool{}
	for _, root := range commands() {
		flagsOf(root).VisitAll(func(f *pflag.Flag) {
			if docs[keyOf(f)] == "" {
				t.Errorf("%T: %s is not documented", root, keyOf(f))
			}
			used[keyOf(f)] = true
		})
	}
	for key := range docs {
		if !used[key] {
			t.Errorf("docs explains %s, which is not a key", key)
		}
	}
}

// gputap run watches waits without being asked: rates of copies and gaps between launches need them.
func TestRunWatchesWaits(t *testing.T) {
	run, producer := DefaultRunCommand().Producer.Features, DefaultProducer().Features
	if !slices.Contains(run, "sync") || slices.Contains(producer, "sync") || !slices.Contains(run, "memory") {
		t.Errorf("features of run %v, of the producer %v", run, producer)
	}
}

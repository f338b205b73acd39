//go:build bpf

package monitoring

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const simulatedHosts = 6

// startFleet runs every part of a fleet: NATS, all consumers, a producer with a program on the stub driver, simulated
// hosts of which every twentieth batch is lost, a host that leaks, and a message that is no batch. It returns the
// addresses of the metrics, by scrape job.
func startFleet(t *testing.T) (targets map[string][]string) {
	t.Helper()
	url := startServer(t)
	nc, err := nats.Connect(url)
	check(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	check(t, err)
	check(t, bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: 2, MaxBytes: 256 << 20}))
	topology, err := bus.ReadTopology(t.Context(), js)
	check(t, err)

	publishLeaky(t, js, topology.Shard)
	odd := schema.Subject(topology.Shard(leakCluster, "gpu-odd"), leakCluster, "gpu-odd", schema.KindMemory)
	_, err = js.Publish(t.Context(), odd, []byte("no batch"))
	check(t, err)

	targets = map[string][]string{}
	const job = "gputap-consumer"
	for _, name := range fold.Names() {
		args := []string{"--nats.url", url, "--metrics-addr", "127.0.0.1:0", "--consumer.checkpoint", "1s"}
		targets[job] = append(targets[job], startProgram(t, built(t, "gputap-"+name), servingMetrics, args...))
	}
	producer := startProgram(t, built(t, "gputap-producer"), servingMetrics, "--nats.url", url,
		"--metrics-addr", "127.0.0.1:0", "--library", built(t, "stub/libcuda.so.1"), "--producer.cluster", leakCluster,
		"--producer.host", "gpu-real", "--producer.heartbeat", "1s")
	targets["gputap-producer"] = []string{producer}
	startProgram(t, built(t, "workload"), nil, "rate", "--rate", "500", "--seconds", "120")
	startSimulation(t, nc)
	return targets
}

func startServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	check(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server did not start")
	}
	return s.ClientURL()
}

func startSimulation(t *testing.T, nc *nats.Conn) {
	t.Helper()
	s, err := simulate.New(simulate.Options{
		Conns: []*nats.Conn{nc}, Cluster: "sim", Hosts: simulatedHosts, Rate: 3000, Seed: 1,
		BatchAge: 200 * time.Millisecond, Lose: 0.05, Drain: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// built returns a file of bin, or of the folder that GPUTAP_BIN names.
func built(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("GPUTAP_BIN")
	if dir == "" {
		dir = "../../../bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	check(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build stub", err)
	}
	return path
}

var (
	servingMetrics = regexp.MustCompile(`"url":"http://([^/]+)/metrics"`)
	listeningOn    = regexp.MustCompile(`msg="Listening on" address=(\S+)`)
)

// startProgram runs a program until the test ends, and returns the first match of the pattern in its log.
func startProgram(t *testing.T, path string, pattern *regexp.Regexp, args ...string) (found string) {
	t.Helper()
	log := &logged{pattern: pattern, found: make(chan string, 1)}
	cmd := exec.Command(path, args...)
	cmd.Stderr = log
	check(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil && pattern != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(path), err, log)
		}
	})
	if pattern == nil {
		return ""
	}
	select {
	case found = <-log.found:
	case err := <-ended:
		ended <- err
		t.Fatalf("%s ended: %v\n%s", filepath.Base(path), err, log)
	case <-time.After(time.Minute):
		t.Fatalf("%s did not start within a minute\n%s", filepath.Base(path), log)
	}
	return found
}

// logged keeps the log of a program and sends the first match of a pattern.
type logged struct {
	pattern *regexp.Regexp
	found   chan string

	mu   sync.Mutex
	text bytes.Buffer
	sent bool
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if l.pattern != nil && !l.sent {
		if m := l.pattern.FindSubmatch(l.text.Bytes()); m != nil {
			l.sent = true
			l.found <- string(m[1])
		}
	}
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startPrometheus runs Debian's Prometheus with deploy/prometheus, but with these targets and scrapes every second.
func startPrometheus(t *testing.T, path string, targets map[string][]string) *api {
	t.Helper()
	data, err := os.ReadFile(deploy + "prometheus/prometheus.yml")
	check(t, err)
	var config map[string]any
	check(t, yaml.Unmarshal(data, &config))
	config["global"] = map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"}
	rules, err := filepath.Abs(deploy + "prometheus/" + config["rule_files"].([]any)[0].(string))
	check(t, err)
	config["rule_files"] = []string{rules}
	for _, entry := range config["scrape_configs"].([]any) {
		scrape := entry.(map[string]any)
		scrape["static_configs"] = []map[string][]string{{"targets": targets[scrape["job_name"].(string)]}}
	}
	data, err = yaml.Marshal(config)
	check(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	check(t, os.WriteFile(file, data, 0o644))
	address := startProgram(t, path, listeningOn, "--config.file", file, "--web.listen-address", "127.0.0.1:0",
		"--storage.tsdb.path", filepath.Join(dir, "data"))
	a := &api{t: t, address: "http://" + address}
	a.eventually("Prometheus is ready", func() bool {
		response, err := http.Get(a.address + "/-/ready")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return a
}

// eventually polls a condition. Scrapes come once a second.
func (a *api) eventually(what string, is func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatal(what + ": not within a minute")
		}
	}
}

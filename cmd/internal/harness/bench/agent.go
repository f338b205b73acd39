package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// agentLoad is what the host agent is measured under: a scenario of the workload with a step before it.
type agentLoad struct {
	what   string
	args   []string // nil: nothing
	atMost float64  // % of a core; 0: no such budget
}

var agentLoads = []agentLoad{
	{"idle", nil, 0},
	{"4,000 memory events/s", []string{"rate", "--rate", "4000"}, 1},
	{"50,000 memory events/s", []string{"rate", "--rate", "50000"}, 0},
	{"500,000 launches/s", []string{"rate", "--launches", "--rate", "500000"}, 0},
	{"1,000 processes, 4 memory events/s each", []string{"crowd", "--count", "1000", "--rate", "4"}, 0},
}

const (
	agentSeconds = 30
	agentMiB     = 40 // resident, without rings
	agentMetrics = "127.0.0.1:29401"
	agentBus     = "nats://127.0.0.1:24222"
)

// measureAgent runs gputap-producer beside a nats-server under each load, and prints a table.
func measureAgent() error {
	dir, err := os.MkdirTemp("", "gputap-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./cmd/gputap", "./cmd/gputap-producer", "github.com/nats-io/nats-server/v2")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "listen: 127.0.0.1:24222\njetstream { store_dir: %q }\n", dir), 0o600); err != nil {
		return err
	}
	if err := exec.CommandContext(ctx, filepath.Join(dir, "nats-server"), "-c", conf, "-l", filepath.Join(dir, "log")).Start(); err != nil {
		return err
	}
	if out, err := exec.Command(filepath.Join(dir, "gputap"), "stream", "init", "--nats.url", agentBus).CombinedOutput(); err != nil {
		return fmt.Errorf("stream init: %w: %s", err, out)
	}
	fmt.Println("\n| host agent, 30 s of | CPU of a core | budget | | MiB resident | of it rings | budget, without rings | | events seen | lost |\n" +
		"| --- | ---: | ---: | --- | ---: | ---: | ---: | --- | ---: | ---: |")
	for _, l := range agentLoads {
		fmt.Fprintf(os.Stderr, "measuring the host agent: %s\n", l.what)
		if err := l.measure(dir); err != nil {
			return fmt.Errorf("%s: %w", l.what, err)
		}
	}
	return nil
}

func (l agentLoad) measure(dir string) error {
	agent := exec.Command(filepath.Join(dir, "gputap-producer"), "--nats.url", agentBus, "--metrics.addr", agentMetrics,
		"--library", "bin/stub/libcuda.so.1", "--log.level", "error")
	agent.Stderr = os.Stderr
	if err := agent.Start(); err != nil {
		return err
	}
	defer func() {
		_ = agent.Process.Signal(os.Interrupt)
		_ = agent.Wait()
	}()
	for counters() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	proceed, end, err := l.start()
	if err != nil {
		return err
	}
	time.Sleep(time.Second) // what the beginning costs is not the load's
	before, began := cpuTime(agent.Process.Pid), time.Now()
	proceed()
	if l.args == nil {
		time.Sleep(agentSeconds * time.Second)
	}
	if err := end(); err != nil {
		return err
	}
	cpu := 100 * float64(cpuTime(agent.Process.Pid)-before) / float64(time.Since(began))
	all, rings := resident(agent.Process.Pid)
	seen, lost := 0.0, 0.0
	for name, v := range counters() {
		switch {
		case strings.HasPrefix(name, "gputap_producer_events_total"):
			seen += v
		case strings.HasPrefix(name, "gputap_producer_events_lost_total"):
			lost += v
		}
	}
	budget, verdict := "", ""
	if l.atMost > 0 {
		budget, verdict = fmt.Sprintf("≤ %g %%", l.atMost), missed(cpu > l.atMost)
	}
	fmt.Printf("| %s | %.2f %% | %s | %s | %.0f | %.0f | ≤ %d | %s | %.0f | %.0f |\n", l.what, cpu, budget, verdict, all, rings, agentMiB,
		missed(all-rings > agentMiB), seen, lost)
	return nil
}

// start starts the load up to its step; end waits for the calls to end, and not for the program.
func (l agentLoad) start() (proceed func(), end func() error, err error) {
	if l.args == nil {
		return func() {}, func() error { return nil }, nil
	}
	cmd := exec.Command("bin/workload", append(slices.Clone(l.args), "--seconds", strconv.Itoa(agentSeconds), "--steps")...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		return nil, nil, fmt.Errorf("the workload does not start: run make stub")
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // step ready
	return func() { fmt.Fprintln(in) }, func() error {
		for lines.Scan() && lines.Text() != "step done" {
		}
		time.Sleep(200 * time.Millisecond) // until the last batch is sent
		go func() {
			in.Close()
			_ = cmd.Wait()
		}()
		return lines.Err()
	}, nil
}

// cpuTime sums what the threads of a process have run.
func cpuTime(pid int) (sum time.Duration) {
	list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range list {
		var ns int64
		if b, err := os.ReadFile(path); err == nil {
			_, _ = fmt.Sscan(string(b), &ns)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// resident is a process's memory in MiB, and what of it are rings that Linux writes.
func resident(pid int) (all, rings float64) {
	smaps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	ring := false
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		if len(fields) > 0 && !strings.HasSuffix(fields[0], ":") {
			ring = bytes.Contains(line, []byte("bpf-map")) || bytes.Contains(line, []byte("[perf_event]"))
		}
		if len(fields) < 2 || fields[0] != "Rss:" {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		all += kib / 1024
		if ring {
			rings += kib / 1024
		}
	}
	return all, rings
}

// counters reads /metrics; nil while nothing answers.
func counters() map[string]float64 {
	answer, err := http.Get("http://" + agentMetrics + "/metrics")
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	all := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all
}

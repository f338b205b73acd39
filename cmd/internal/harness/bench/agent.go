package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
)

const agentSeconds = 30

// agentTable is a program that watches the host, under steady loads.
type agentTable struct {
	title                  string
	args                   []string
	resident, withoutRings budget // MiB
	loads                  []agentLoad
}

// agentLoad is a scenario of the workload, which waits for a step.
type agentLoad struct {
	what string
	args string // empty: no load
	cpu  budget // % of a core
}

var agentTables = []agentTable{
	{"gputap-producer", []string{"gputap-producer", "--log.level", "error"}, atMost(128), atMost(40), []agentLoad{
		{"idle", "", none},
		{"4,000 memory events/s", "rate --rate 4000", atMost(1)},
		{"50,000 memory events/s", "rate --rate 50000", none},
		{"500,000 launches/s", "rate --launches --rate 500000", none},
		{"1,000 processes, 4 memory events/s each", "crowd --count 1000 --rate 4", none},
	}},
	{"gputap run", []string{"gputap", "run", "--display-interval", "1h"}, atMost(192), none, []agentLoad{
		{"idle", "", none},
		{"500,000 launches/s", "rate --launches --rate 500000", none},
	}},
}

// figures are the rows, for each load in the order of measure's values.
func (t *agentTable) figures() (list []figure) {
	for _, l := range t.loads {
		list = append(list,
			figure{l.what + ": CPU", "% of a core", "", l.cpu},
			figure{l.what + ": resident memory", "MiB", "", t.resident},
			figure{l.what + ": resident memory without rings", "MiB", "", t.withoutRings},
			figure{l.what + ": seen", "events", "", none}, figure{l.what + ": lost", "events", "", atMost(0)})
	}
	return list
}

// agent is a program that watches the host, beside a nats-server.
type agent struct {
	*cluster.Workspace
	natsURL, metricsAddr string
}

// measureAgent runs each program under its loads and prints a table of it.
func measureAgent(ctx context.Context) error {
	w, err := cluster.NewWorkspace("", "bench", os.Stderr)
	if err != nil {
		return err
	}
	defer w.Close(false)
	if err := cluster.Build(ctx, ".", w.Bin); err != nil {
		return err
	}
	nodes, err := w.Nodes(1, "8GB")
	if err != nil {
		return err
	}
	addrs, err := cluster.FreeAddrs(1)
	if err != nil {
		return err
	}
	a := &agent{w, cluster.URLs(nodes), addrs[0]}
	if _, err := w.StartNodes(ctx, nodes, 1, 4<<30); err != nil {
		return err
	}
	for _, t := range agentTables {
		var all []float64
		for _, l := range t.loads {
			w.Say("%s: %s", t.title, l.what)
			values, err := a.measure(ctx, t.args, l.args)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", t.title, l.what, err)
			}
			all = append(all, values...)
		}
		head(fmt.Sprintf("%s, %d s of each load", t.title, agentSeconds))
		for i, f := range t.figures() {
			f.print(all[i])
		}
	}
	return nil
}

// measure returns the values of one load, in the order of figures.
func (a *agent) measure(ctx context.Context, program []string, load string) (values []float64, err error) {
	args := append([]string{a.Program(program[0])}, program[1:]...)
	if program[0] == "gputap-producer" {
		args = append(args, "--nats.url", a.natsURL)
	}
	p := &cluster.Process{Name: program[0], Dir: a.Dir, Args: append(args, "--metrics-addr", a.metricsAddr,
		"--library", "bin/stub/libcuda.so.1")}
	if err := p.Start(); err != nil {
		return nil, err
	}
	defer p.Kill()
	if err := cluster.Until(ctx, time.Minute, func() error {
		_, err := a.page()
		return errors.Join(err, cluster.CheckRunning(p))
	}); err != nil {
		return nil, err
	}
	proceed, end, err := start(ctx, load)
	if err != nil {
		return nil, err
	}
	if err := cluster.Sleep(ctx, time.Second); err != nil { // leaves out the cost of the start
		return nil, err
	}
	before, err := p.Usage()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	proceed()
	if err := end(); err != nil {
		return nil, err
	}
	after, err := p.Usage()
	if err != nil {
		return nil, err
	}
	cpu := 100 * float64(after.CPU-before.CPU) / float64(time.Since(began))
	all, rings := resident(p.PID())
	page, err := a.page()
	if err != nil {
		return nil, err
	}
	return []float64{cpu, all, all - rings, page.Sum("gputap_producer_events_total"),
		page.Sum("gputap_producer_events_lost_total")}, p.End(syscall.SIGINT, time.Minute)
}

func (a *agent) page() (scrape.Page, error) {
	return scrape.Get(a.metricsAddr, "gputap_producer_")
}

// start starts the load, which waits until proceed. end waits for the end of its calls, not of the program. Without a
// load end waits as long.
func start(ctx context.Context, load string) (proceed func(), end func() error, err error) {
	if load == "" {
		return func() {}, func() error { return cluster.Sleep(ctx, agentSeconds*time.Second) }, nil
	}
	cmd := exec.Command("bin/workload", append(strings.Fields(load), "--seconds", strconv.Itoa(agentSeconds),
		"--steps")...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	err = errors.Join(err1, err2)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start the workload: %w; run make stub", err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // step ready
	return func() { fmt.Fprintln(in) }, func() error {
		for lines.Scan() && lines.Text() != "step done" {
		}
		time.Sleep(200 * time.Millisecond) // until the last batch is published
		go func() {
			in.Close()
			_ = cmd.Wait()
		}()
		return lines.Err()
	}, nil
}

// resident returns a process's resident memory in MiB, and how much of it are the rings that Linux writes.
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

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
)

// agentLoad is a load under which the host agent is measured: a scenario of the workload that waits for a step.
type agentLoad struct {
	what   string
	args   []string // nil: no load
	atMost float64  // % of a core; 0: no budget
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
	allMiB       = 128 // resident
	ownMiB       = 40  // resident, without rings
)

// agent is gputap-producer beside a nats-server.
type agent struct {
	*cluster.Workspace
	natsURL, metricsAddr string
}

// measureAgent runs gputap-producer under each load and prints a table.
func measureAgent(ctx context.Context) error {
	w, err := cluster.NewWorkspace("", "bench", os.Stderr)
	if err != nil {
		return err
	}
	defer w.Close(false)
	err = cluster.Build(ctx, ".", w.Bin, "./cmd/gputap", "./cmd/gputap-producer", "github.com/nats-io/nats-server/v2")
	if err != nil {
		return err
	}
	nodes, err := cluster.Nodes(w.Dir, w.Program("nats-server"), 1, "8GB")
	if err != nil {
		return err
	}
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return err
	}
	a := &agent{w, cluster.URLs(nodes), fmt.Sprintf("127.0.0.1:%d", ports[0])}
	if err := nodes[0].Start(); err != nil {
		return err
	}
	defer nodes[0].Kill()
	if err := cluster.InitStreams(ctx, w.Program("gputap"), a.natsURL, 1, 1, 4<<30); err != nil {
		return err
	}
	fmt.Printf("\n| host agent, 30 s of | CPU of a core | budget | | MiB resident (≤ %d) | "+
		"| MiB without rings (≤ %d) | | events seen | lost |\n"+
		"| --- | ---: | ---: | --- | ---: | --- | ---: | --- | ---: | ---: |\n", allMiB, ownMiB)
	for _, l := range agentLoads {
		w.Say("host agent: %s", l.what)
		if err := a.measure(ctx, l); err != nil {
			return fmt.Errorf("host agent, %s: %w", l.what, err)
		}
	}
	return nil
}

func (a *agent) measure(ctx context.Context, l agentLoad) error {
	p := &cluster.Process{Name: "gputap-producer", Dir: a.Dir, Args: []string{
		a.Program("gputap-producer"), "--nats.url", a.natsURL, "--metrics.addr", a.metricsAddr,
		"--library", "bin/stub/libcuda.so.1", "--log.level", "error",
	}}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Kill()
	if err := cluster.Until(ctx, time.Minute, func() error {
		_, err := a.page()
		return errors.Join(err, cluster.CheckRunning(p))
	}); err != nil {
		return err
	}
	proceed, end, err := l.start()
	if err != nil {
		return err
	}
	if err := cluster.Sleep(ctx, time.Second); err != nil { // leaves out the cost of the start
		return err
	}
	before, err := p.Usage()
	if err != nil {
		return err
	}
	began := time.Now()
	proceed()
	if l.args == nil {
		if err := cluster.Sleep(ctx, agentSeconds*time.Second); err != nil {
			return err
		}
	}
	if err := end(); err != nil {
		return err
	}
	after, err := p.Usage()
	if err != nil {
		return err
	}
	cpu := 100 * float64(after.CPU-before.CPU) / float64(time.Since(began))
	all, rings := resident(p.PID())
	page, err := a.page()
	if err != nil {
		return err
	}
	budget, verdict := "", ""
	if l.atMost > 0 {
		budget, verdict = fmt.Sprintf("≤ %g %%", l.atMost), missed(cpu > l.atMost)
	}
	fmt.Printf("| %s | %.2f %% | %s | %s | %.0f | %s | %.0f | %s | %.0f | %.0f |\n",
		l.what, cpu, budget, verdict, all, missed(all > allMiB), all-rings, missed(all-rings > ownMiB),
		page.Sum("gputap_producer_events_total"), page.Sum("gputap_producer_events_lost_total"))
	return p.Stop(syscall.SIGINT, time.Minute)
}

func (a *agent) page() (scrape.Page, error) {
	return scrape.Get("http://"+a.metricsAddr+"/metrics", "gputap_producer_")
}

// start starts the load, which waits until proceed. end waits for the end of its calls, not of the program.
func (l agentLoad) start() (proceed func(), end func() error, err error) {
	if l.args == nil {
		return func() {}, func() error { return nil }, nil
	}
	cmd := exec.Command("bin/workload", append(slices.Clone(l.args), "--seconds", strconv.Itoa(agentSeconds),
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

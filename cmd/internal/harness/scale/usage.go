package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
)

// reading is the usage of processes and machine up to one moment.
type reading struct {
	at         time.Time
	processes  []cluster.Usage // in the order of read's arguments
	nodes      [nodes]cluster.Usage
	in, out    float64 // bytes that the nodes received and sent, also among themselves
	idle, time float64 // of all CPUs together, in ticks
}

func (b *bench) read(processes ...*cluster.Process) (r reading, err error) {
	r.at = time.Now()
	for _, p := range processes {
		u, err := p.Usage()
		if err != nil {
			return r, err
		}
		r.processes = append(r.processes, u)
	}
	for i, n := range b.nodes {
		if r.nodes[i], err = n.Usage(); err != nil {
			return r, err
		}
		var traffic struct {
			In  float64 `json:"in_bytes"`
			Out float64 `json:"out_bytes"`
		}
		page, err := scrape.Body(n.Monitor + "/varz")
		if err == nil {
			err = json.Unmarshal(page, &traffic)
		}
		if err != nil {
			return r, fmt.Errorf("read the monitoring page of a node: %w", err)
		}
		r.in, r.out = r.in+traffic.In, r.out+traffic.Out
	}
	r.idle, r.time = machineIdle()
	return r, nil
}

// using returns the usage of the processes, the nodes and the machine while do runs. do may end the processes.
func (b *bench) using(do func() error, processes ...*cluster.Process) (use, error) {
	before, err := b.read(processes...)
	if err != nil {
		return use{}, err
	}
	if err := do(); err != nil {
		return use{}, err
	}
	after, err := b.read(processes...)
	return before.until(after), err
}

// machineIdle returns the idle time, I/O wait included, and the total time of all CPUs together.
func machineIdle() (idle, all float64) {
	text, _ := os.ReadFile("/proc/stat")
	var user, nice, system, rest, wait, irq, softirq, steal float64
	_, _ = fmt.Sscanf(string(text), "cpu %g %g %g %g %g %g %g %g", &user, &nice, &system, &rest, &wait, &irq, &softirq,
		&steal)
	idle = rest + wait
	return idle, idle + user + nice + system + irq + softirq + steal
}

// use is the difference of two readings.
type use struct {
	seconds float64
	cpu     []float64      // seconds of each process
	nodes   [nodes]float64 // CPU seconds of each node
	in, out float64        // bytes of all nodes, also from and to each other
	written float64        // bytes that the nodes wrote to disks
	idle    float64        // fraction of all CPUs

	processesCPU, nodesCPU float64 // seconds of all together
}

func (a reading) until(b reading) use {
	u := use{seconds: b.at.Sub(a.at).Seconds(), in: b.in - a.in, out: b.out - a.out}
	for i := range b.processes {
		u.cpu = append(u.cpu, (b.processes[i].CPU - a.processes[i].CPU).Seconds())
		u.processesCPU += u.cpu[i]
	}
	for i := range b.nodes {
		u.nodes[i] = (b.nodes[i].CPU - a.nodes[i].CPU).Seconds()
		u.nodesCPU += u.nodes[i]
		u.written += float64(b.nodes[i].Written - a.nodes[i].Written)
	}
	u.idle = (b.idle - a.idle) / max(b.time-a.time, 1)
	return u
}

// busy returns the fraction of its CPUs that something used.
func busy(cpu, seconds float64, cpus []int) float64 {
	return cpu / seconds / float64(max(len(cpus), 1))
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// nodesBusy returns the fraction of its CPUs that each node used.
func (b *bench) nodesBusy(u *use) string {
	var list []string
	for i, cpu := range u.nodes {
		list = append(list, fmt.Sprintf("%.0f", 100*busy(cpu, u.seconds, b.nodeCPUs[i])))
	}
	return strings.Join(list, "/") + " %"
}

// diskUsage returns the size of the nodes' stores, Raft logs included.
func (b *bench) diskUsage() (bytes float64) {
	for _, n := range b.nodes {
		_ = filepath.WalkDir(n.Store, func(_ string, d os.DirEntry, err error) error {
			if err != nil {
				return nil // it may be removed meanwhile
			}
			if info, err := d.Info(); err == nil {
				bytes += 512 * float64(info.Sys().(*syscall.Stat_t).Blocks)
			}
			return nil
		})
	}
	return bytes
}

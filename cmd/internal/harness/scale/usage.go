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
	in, out    int64         // bytes that the nodes received and sent, also among themselves
	idle, time time.Duration // of all CPUs together
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
		in, out, err := traffic(n.Monitor)
		if err != nil {
			return r, err
		}
		r.in, r.out = r.in+in, r.out+out
	}
	r.idle, r.time = machineIdle()
	return r, nil
}

// traffic returns the bytes that a node has received and sent.
func traffic(monitor string) (in, out int64, err error) {
	var v struct {
		In  int64 `json:"in_bytes"`
		Out int64 `json:"out_bytes"`
	}
	body, err := scrape.Body(monitor + "/varz")
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the monitoring page of a node: %w", err)
	}
	return v.In, v.Out, nil
}

// machineIdle returns the idle time, I/O wait included, and the total time of all CPUs together.
func machineIdle() (idle, all time.Duration) {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	const tick = 10 * time.Millisecond
	for i, field := range strings.Fields(first) {
		var n int64
		if _, err := fmt.Sscan(field, &n); err != nil || i > 8 { // guest time is part of user time
			continue
		}
		all += time.Duration(n) * tick
		if i == 4 || i == 5 { // idle, iowait
			idle += time.Duration(n) * tick
		}
	}
	return idle, all
}

// use is the difference of two readings.
type use struct {
	Seconds     float64        `json:"seconds"`
	CPU         []float64      `json:"cpu_seconds"`        // of each process
	NodeCPU     [nodes]float64 `json:"node_cpu_seconds"`   // of each node
	NodeIn      int64          `json:"node_bytes_in"`      // of all nodes, also from each other
	NodeOut     int64          `json:"node_bytes_out"`     // likewise
	NodeRead    int64          `json:"node_bytes_read"`    // from disks
	NodeWritten int64          `json:"node_bytes_written"` // to disks
	Idle        float64        `json:"machine_idle"`       // fraction of all CPUs
}

func (a reading) until(b reading) use {
	u := use{Seconds: b.at.Sub(a.at).Seconds(), NodeIn: b.in - a.in, NodeOut: b.out - a.out}
	for i := range b.processes {
		cpu := b.processes[i].CPU
		if i < len(a.processes) {
			cpu -= a.processes[i].CPU
		}
		u.CPU = append(u.CPU, cpu.Seconds())
	}
	for i := range b.nodes {
		u.NodeCPU[i] = (b.nodes[i].CPU - a.nodes[i].CPU).Seconds()
		u.NodeRead += b.nodes[i].Read - a.nodes[i].Read
		u.NodeWritten += b.nodes[i].Written - a.nodes[i].Written
	}
	if all := b.time - a.time; all > 0 {
		u.Idle = float64(b.idle-a.idle) / float64(all)
	}
	return u
}

func (u *use) nodesCPU() float64 { return sum(u.NodeCPU[:]) }

func (u *use) processesCPU() float64 { return sum(u.CPU) }

func sum(list []float64) (all float64) {
	for _, v := range list {
		all += v
	}
	return all
}

// busy returns the fraction of its CPUs that something used.
func busy(cpu, seconds float64, cpus []int) float64 {
	return cpu / seconds / float64(max(len(cpus), 1))
}

const nearlyAll = 0.9

// limit names the processes that had less than a tenth of their CPUs left. each are the CPUs of the processes; nil for
// a process that may use all CPUs.
func (b *bench) limit(u *use, what string, each [][]int) string {
	full := 0
	for i, cpus := range each {
		if len(cpus) > 0 && busy(u.CPU[i], u.Seconds, cpus) >= nearlyAll {
			full++
		}
	}
	var names []string
	if full > 0 {
		names = append(names, fmt.Sprintf("%s (%d of %d)", what, full, len(each)))
	}
	for i, cpus := range b.nodeCPUs {
		if len(cpus) > 0 && busy(u.NodeCPU[i], u.Seconds, cpus) >= nearlyAll {
			names = append(names, fmt.Sprintf("node %d", i))
		}
	}
	if u.Idle <= 1-nearlyAll {
		names = append(names, "all CPUs of the machine")
	}
	if len(names) == 0 {
		return "no CPU"
	}
	return strings.Join(names, ", ")
}

// diskUsage returns the size of the nodes' stores: the shards' streams, and the rest, most of it Raft logs.
func (b *bench) diskUsage() (streams, rest int64) {
	for _, n := range b.nodes {
		_ = filepath.WalkDir(n.Store, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // it may be removed meanwhile
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			bytes := info.Size()
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes = stat.Blocks * 512
			}
			if strings.Contains(path, "/streams/GPUTAP_EV_") {
				streams += bytes
			} else {
				rest += bytes
			}
			return nil
		})
	}
	return streams, rest
}

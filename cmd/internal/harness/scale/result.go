package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/gputap/gputap/cmd/internal/simulate"
)

// result is what -o writes.
type result struct {
	Machine   string         `json:"machine"`
	Shards    int            `json:"shards"`
	Hosts     int            `json:"hosts"`
	CPUs      [nodes][]int   `json:"node_cpus"` // of each node; null: all
	NodeGOGC  int            `json:"node_gogc"`
	Simulator []int          `json:"simulator_cpus"`
	Leaders   map[string]int `json:"leaders"` // streams that a node leads
	Fill      fillResult     `json:"fill"`
	folded
	Live []liveResult `json:"live"`
	Host []hostResult `json:"host"`
}

// folded is what folds, and no-op consumers as their baseline, have read of a backlog.
type folded struct {
	Baseline []backlogResult `json:"raw"`
	Backlog  []backlogResult `json:"backlog"`
}

func (r *result) setup(o *options) {
	r.Machine, r.Shards, r.Hosts = machine(), o.shards, o.hosts
	r.CPUs, r.NodeGOGC, r.Simulator = o.nodeCPUs, o.nodeGOGC, o.simulatorCPUs
}

type fillResult struct {
	use
	Stats       simulate.Stats `json:"simulator"`
	DiskStreams int64          `json:"disk_bytes_streams"` // of all replicas
	DiskRest    int64          `json:"disk_bytes_rest"`
	Limit       string         `json:"limit"`
}

// backlogResult describes the steady window, unless a field says otherwise.
type backlogResult struct {
	use
	Fold              string  `json:"fold"`
	Instances         int     `json:"instances"` // or no-op consumers
	TotalSeconds      float64 `json:"total_seconds"`
	All               float64 `json:"all_events"`
	Messages          float64 `json:"all_messages"`
	WindowEvents      float64 `json:"events"`
	WindowMessages    float64 `json:"messages"`
	EventsPerSecond   float64 `json:"events_per_second"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	EventsPerMessage  float64 `json:"events_per_message,omitempty"`
	MessageBytes      float64 `json:"bytes_per_message"`
	Resident          []int64 `json:"resident_bytes"` // peak of each instance
	Short             bool    `json:"short"`          // too short to be meaningful
	// messages_per_second covers all messages, by the consumer's own clock
	Whole      bool    `json:"whole"`
	LeasesLost float64 `json:"leases_lost"` // batches were folded twice: not a steady run
	Limit      string  `json:"limit"`
}

type liveResult struct {
	Stats       simulate.Stats `json:"simulator"` // from its start to its end
	Alone       liveSpan       `json:"without_folds"`
	Folded      liveSpan       `json:"with_folds"`
	CaughtUp    bool           `json:"caught_up"` // with the messages from before the folds started
	Folds       []liveFold     `json:"folds"`
	DiskStreams int64          `json:"disk_bytes_streams"`
	DiskRest    int64          `json:"disk_bytes_rest"`
}

type liveSpan struct {
	use
	MessagesPerSecond float64 `json:"messages_per_second"`
	Limit             string  `json:"limit"`
}

type liveFold struct {
	Fold              string  `json:"fold"`
	CPU               float64 `json:"cpu_seconds"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	EventsPerSecond   float64 `json:"events_per_second"`
	MostLag           float64 `json:"most_lag_messages"`
	Resident          int64   `json:"resident_bytes"`
}

// report prints the tables, and writes the file.
func (b *bench) report() error {
	r := &b.result
	fmt.Printf("%s; nodes on CPUs %s with GOGC=%d, the simulator on %s, %d shards, leaders per node: %v.\n\n",
		r.Machine, cpuNames(r.CPUs[:]...), r.NodeGOGC, cpuNames(r.Simulator), r.Shards, leaders(r.Leaders))
	r.printFill()
	r.printFolded(&r.folded)
	for i := range r.Live {
		r.printLive(&r.Live[i])
	}
	for i := range r.Host {
		r.printHost(&r.Host[i])
	}
	if b.out == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(b.out, append(text, '\n'), 0o644)
}

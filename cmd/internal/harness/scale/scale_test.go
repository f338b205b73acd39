package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		want string // in the error; empty: valid
	}{
		"none":                     {"", ""},
		"16 CPUs":                  {"-node-cpus 0-1,2-3,4-5 -simulator-cpus 6-9 -instance-cpus 10-13", ""},
		"two nodes":                {"-node-cpus 0-1,2-3", "-node-cpus"},
		"backwards":                {"-simulator-cpus 9-6", "-simulator-cpus"},
		"no number":                {"-instance-cpus x", "-instance-cpus"},
		"two CPUs each":            {"-instance-cpus 10-11,12-13", ""},
		"an incomplete range":      {"-instance-cpus 10-11,", "-instance-cpus"},
		"no instance":              {"-instances 1,0", "-instances"},
		"too many":                 {"-shards 4 -instances 5", "-instances"},
		"no rate":                  {"-live-rates 200e3,", "-live-rates"},
		"too few events":           {"-events 10", "-events"},
		"a host":                   {"-shards 1 -host-events 10e6 -host-calls launch,alloc", ""},
		"a host with 16 shards":    {"-host-events 10e6", "-shards 1"},
		"too few events of a host": {"-shards 1 -host-events 10", "-host-events"},
		"unknown call":             {"-shards 1 -host-events 10e6 -host-calls lunch", `"lunch"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(strings.Fields(c.args))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	for shards, want := range map[string][]int{"1": {1}, "3": {1, 2}, "16": {1, 2, 4}} {
		o, err := parse([]string{"-shards", shards, "-instance-cpus", "6-8"})
		if err != nil || !slices.Equal(o.instances, want) ||
			!slices.EqualFunc(o.instanceCPUs, [][]int{{6}, {7}, {8}}, slices.Equal[[]int]) {
			t.Errorf("%s shards: %v on %v, %v", shards, o.instances, o.instanceCPUs, err)
		}
	}
}

// TestSampleSumsShards: each metric is summed over all shards and instances.
func TestSampleSumsShards(t *testing.T) {
	const page = `# HELP gputap_consumer_batches_total Messages dealt with, by outcome.
gputap_consumer_batches_total{consumer="leak",result="ok",shard="000"} 100
gputap_consumer_batches_total{consumer="leak",result="duplicate",shard="000"} 3
gputap_consumer_batches_total{consumer="leak",result="invalid",shard="001"} 2
gputap_consumer_events_total{consumer="leak",kind="memory",shard="000"} 1e+06
gputap_consumer_events_total{consumer="leak",kind="memory",shard="001"} 5
gputap_consumer_gap_batches_total{cluster="c",consumer="leak",hostname="h",shard="000"} 7
gputap_consumer_lag_messages{consumer="leak",shard="000"} 11
gputap_consumer_lag_messages{consumer="leak",shard="001"} 1
gputap_consumer_owned_shards{consumer="leak"} 2
gputap_consumer_leases_lost_total{consumer="leak"} 4
gputap_memory_live_bytes{hostname="h"} 9
`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(page))
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	got, err := (&bench{}).sample(&instances{addrs: []string{addr, addr}})
	want := counters{messages: 210, rejected: 4, events: 2_000_010, missing: 14, lag: 24, leases: 8}
	if err != nil || got.counters != want {
		t.Fatalf("got %+v, %v, want %+v", got.counters, err, want)
	}
}

// TestWindowLeavesOutTheEdges: the first and the last tenth of the messages do not count.
func TestWindowLeavesOutTheEdges(t *testing.T) {
	var list []sample
	for _, messages := range []float64{0, 5, 9, 12, 50, 88, 91, 100} {
		list = append(list, sample{counters: counters{messages: messages}})
	}
	if first, last := window(list, 100); first != 3 || last != 5 {
		t.Fatalf("from %d to %d, want 3 to 5", first, last)
	}
	if first, last := window(list[:1], 100); first != last {
		t.Fatalf("of one sample from %d to %d", first, last)
	}
}

func TestUseIsTheDifferenceOfReadings(t *testing.T) {
	now := time.Now()
	a, b := reading{at: now, in: 5, idle: 1, time: 10}, reading{at: now.Add(2 * time.Second), in: 25, idle: 6, time: 20}
	b.nodes[1].CPU = time.Second
	if u := a.until(b); u.seconds != 2 || u.in != 20 || u.idle != 0.5 || u.nodes != [nodes]float64{0, 1, 0} {
		t.Fatalf("got %+v", u)
	}
}

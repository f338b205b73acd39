package consumer

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// scrape collects all that a reader shows.
func scrape(t *testing.T, r *Reader) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// headerAt is that of a host's batch whose events happened at a wall time.
func headerAt(host string, seq uint64, wall time.Time) schema.Header {
	return schema.Header{Cluster: "c", Host: host, BootID: "b", Run: 1, Seq: seq, ClockOffset: wall.UnixNano()}
}

// TestHostsWithOneLabelAreOneSeries: two names that are not UTF-8 may become the same label.
func TestHostsWithOneLabelAreOneSeries(t *testing.T) {
	t.Parallel()
	r := newReader(ReaderOptions{}, nil, newChain(), slog.New(slog.DiscardHandler))
	for i, name := range []string{"h\xff", "h\xfe"} {
		r.hosts[hostID{Cluster: "c", Host: name}] = &hostState{gaps: 1, missing: uint64(2 + i),
			lastEvent: time.Unix(int64(100-i), 0)}
	}
	want := `
# HELP gputap_consumer_gap_batches_total Batches missing in those gaps: lost.
# TYPE gputap_consumer_gap_batches_total counter
gputap_consumer_gap_batches_total{cluster="c",consumer="chain",hostname="h�",shard="000"} 5
# HELP gputap_consumer_host_last_event_timestamp_seconds Wall time of a host's last event.
# TYPE gputap_consumer_host_last_event_timestamp_seconds gauge
gputap_consumer_host_last_event_timestamp_seconds{cluster="c",consumer="chain",hostname="h�",shard="000"} 100
`
	if err := testutil.CollectAndCompare(r, strings.NewReader(want), "gputap_consumer_gap_batches_total",
		"gputap_consumer_host_last_event_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}

// TestScrapeDoesNotChangeState: neither alone nor beside a checkpoint.
func TestScrapeDoesNotChangeState(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	now := time.Now()
	fold := newChain()
	r, _ := start(t, js, fold, ReaderOptions{})
	var last uint64
	for i := range 300 {
		h := headerAt(fmt.Sprint("h", i), 3, now.Add(-time.Duration(i)*time.Minute))
		ack, err := js.PublishAsync(schema.Subject(0, "c", h.Host, schema.KindMemory), encode(schema.KindMemory, h))
		if err != nil {
			t.Fatal(err)
		}
		last = (<-ack.Ok()).Sequence
	}
	wait(t, r, last)
	before, err := r.State(fold)
	if err != nil {
		t.Fatal(err)
	}
	var scraping sync.WaitGroup
	scraping.Go(func() { scrape(t, r) })
	for range 10 {
		state, err := r.State(fold)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(state, before) {
			t.Fatalf("a scrape changed the state: %d bytes, and %d before", len(state), len(before))
		}
	}
	scraping.Wait()
	if state, err := r.State(fold); err != nil || !bytes.Equal(state, before) {
		t.Fatalf("a scrape changed the state: %d bytes, and %d before, %v", len(state), len(before), err)
	}
}

// TestCheckpointMetricsAfterTakeover: age and size are those of the restored checkpoint.
func TestCheckpointMetricsAfterTakeover(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.send("h")
	before := f.instance("before", newChain)
	before.folded(t, f) // else the next instance writes a checkpoint at once
	before.stop()
	saved, err := shard.Saved(t.Context(), f.admin, "chain", 0)
	if err != nil {
		t.Fatal(err)
	}
	i := f.instance("after", newChain)
	eventually(t, "it is taken up", func() bool { return len(i.shards()) == 1 })
	age := time.Since(saved.Written)
	registry := prometheus.NewRegistry()
	registry.MustRegister(i)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		shown[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	if got := shown["gputap_consumer_checkpoint_age_seconds"]; got < age.Seconds() {
		t.Errorf("the checkpoint is %g s old, want at least %g s", got, age.Seconds())
	}
	if got := shown["gputap_consumer_checkpoint_bytes"]; got != float64(len(saved.State)) {
		t.Errorf("the checkpoint has %g bytes, want %d", got, len(saved.State))
	}
	i.stop()
}

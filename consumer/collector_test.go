package consumer

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// TestScrapesLeaveTheStateAlone: beside a checkpoint too.
func TestScrapesLeaveTheStateAlone(t *testing.T) {
	js := connectReady(t)
	now := time.Now()
	fold := newChain()
	r, _ := start(t, js, fold, ReaderOptions{})
	var last uint64
	for i := range 2000 {
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

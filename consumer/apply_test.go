package consumer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// hostile is five bytes that claim 20 M entries; decoded without bounds they ask for 305 MiB.
var hostile = binary.BigEndian.AppendUint32([]byte{0xdd}, 20_000_000)

func events(n uint64) (e [schema.NumKinds]uint64) {
	e[schema.KindMemory] = n
	return e
}

var outcomeRows = []struct {
	name  string
	send  [][]byte
	want  []uint64
	told  uint64 // lost batches that the fold records
	stats Stats
}{
	{"in order", [][]byte{memory(1), memory(2)}, []uint64{1, 2}, 0, Stats{Batches: 2, Events: events(2)}},
	{
		"stored twice", [][]byte{memory(1), memory(1), memory(2)},
		[]uint64{1, 2}, 0, Stats{Batches: 2, Events: events(2), Duplicates: 1},
	},
	{
		"a hole of two", [][]byte{memory(1), memory(4)},
		[]uint64{1, 4}, 2, Stats{Batches: 2, Events: events(2), Gaps: 1, Missing: 2},
	},
	{
		"older than the last", [][]byte{memory(1), memory(3), memory(2)},
		[]uint64{1, 3}, 1, Stats{Batches: 2, Events: events(2), Gaps: 1, Missing: 1, Duplicates: 1},
	},
	{
		"a new run counts from 1", [][]byte{memory(1), message(2, 1, schema.KindMemory)},
		[]uint64{1, 1}, 0, Stats{Batches: 2, Events: events(2)},
	},
	{
		"a whole stream that begins with seq 3", [][]byte{memory(3)},
		[]uint64{3}, 2, Stats{Batches: 1, Events: events(1), Gaps: 1, Missing: 2},
	},
	{"no seq", [][]byte{memory(0), memory(1)}, []uint64{1}, 0,
		Stats{Batches: 1, Events: events(1), Invalid: 1, DeadLetters: 1}},
	{
		"five bytes that claim 20 M entries", [][]byte{hostile, memory(1)},
		[]uint64{1}, 0, Stats{Batches: 1, Events: events(1), Invalid: 1, DeadLetters: 1},
	},
	{
		"truncated", [][]byte{memory(1), memory(2)[:40], memory(2)[:len(memory(2))-1], {}, memory(2)},
		[]uint64{1, 2}, 0, Stats{Batches: 2, Events: events(2), Invalid: 3, DeadLetters: 3},
	},
	{
		"a host that speaks for another",
		[][]byte{encode(schema.KindMemory, schema.Header{Cluster: "c", Host: "g", BootID: "b", Run: 1, Seq: 9}),
			memory(1)},
		[]uint64{1}, 0, Stats{Batches: 1, Events: events(1), Invalid: 1, DeadLetters: 1},
	},
	{
		"a kind of the future", [][]byte{message(1, 1, schema.KindNone), memory(1)},
		[]uint64{1}, 0, Stats{Batches: 1, Events: events(1), Unknown: 1},
	},
	{
		"a batch that the fold panics over", [][]byte{memory(1), memory(2), memory(3)},
		[]uint64{1, 3}, 1, Stats{Batches: 2, Events: events(2), Refused: 1, DeadLetters: 1},
	},
	{
		"a batch that the fold refuses", [][]byte{memory(3), memory(4), memory(5)},
		[]uint64{3, 5}, 3, Stats{Batches: 2, Events: events(2), Gaps: 1, Missing: 2, Refused: 1, DeadLetters: 1},
	},
}

func TestOutcomeOfEachMessage(t *testing.T) {
	t.Parallel()
	for _, tt := range outcomeRows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			js := connectReady(t)
			fold := &recorder{poison: 2, refuse: 4}
			if strings.Contains(tt.name, "panics") == strings.Contains(tt.name, "refuses") {
				fold.poison, fold.refuse = 0, 0
			}
			c, _ := start(t, js, fold, ReaderOptions{})
			var last uint64
			for _, data := range tt.send {
				last = publish(t, js, schema.KindMemory, data)
			}
			wait(t, c, last)
			expect(t, fold, tt.want...)
			if got := fold.toldLost(); got != tt.told {
				t.Errorf("the fold records %d lost batches, want %d", got, tt.told)
			}
			got := c.Stats()
			got.LastEvent = time.Time{}
			if got != tt.stats {
				t.Errorf("stats\n%+v, want\n%+v", got, tt.stats)
			}
		})
	}
}

func TestDeadLetterNamesItsOrigin(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	ensureStreamForTest(t, js) // and no stream for dead letters
	c, _ := start(t, js, &recorder{}, ReaderOptions{})
	wait(t, c, publish(t, js, schema.KindMemory, hostile))
	s, err := js.Stream(t.Context(), schema.DeadLetterStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "gputap.v1.dlq.recorder.0" || !bytes.Equal(m.Data, hostile) {
		t.Errorf("dead letter %q on %s", m.Data, m.Subject)
	}
	for key, want := range map[string]string{
		"Gputap-Stream": "GPUTAP_EV_000", "Gputap-Seq": "1", "Gputap-Subject": "gputap.v1.ev.0.c.h.memory",
		"Gputap-Error": "malformed batch",
	} {
		if got := m.Header.Get(key); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

func ensureStreamForTest(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	config := jetstream.StreamConfig{Name: schema.StreamName(0), Subjects: []string{schema.ShardSubjects(0)},
		AllowDirect: true}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

func TestHostileMessagesAllocateLittle(t *testing.T) {
	js := connectReady(t)
	c, _ := start(t, js, &recorder{}, ReaderOptions{})
	wait(t, c, publish(t, js, schema.KindMemory, hostile))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var last uint64
	for range 100 {
		last = publish(t, js, schema.KindMemory, hostile)
	}
	wait(t, c, last)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 { // the server's share included
		t.Errorf("100 hostile messages allocated %d MiB", grown>>20)
	}
}

func TestLostSumsTheLatestOfEachRun(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	fold := &recorder{}
	c, _ := start(t, js, fold, ReaderOptions{})
	var last uint64
	for _, h := range []schema.Header{
		{Run: 1, Seq: 1, Lost: [schema.NumLosses]uint64{schema.LossBulkRing: 3}},
		{Run: 1, Seq: 2, Lost: [schema.NumLosses]uint64{schema.LossBulkRing: 5}},
		{Run: 2, Seq: 1, Lost: [schema.NumLosses]uint64{schema.LossBulkRing: 1, schema.LossSpool: 7}},
	} {
		h.Cluster, h.Host, h.BootID = "c", "h", "b"
		last = publish(t, js, schema.KindHost, encode(schema.KindHost, h))
	}
	wait(t, c, last)
	if fold.heartbeats != 3 {
		t.Errorf("%d heartbeats reached a fold that did not name their kind, want 3", fold.heartbeats)
	}
	lost := c.Lost()
	if lost[schema.LossBulkRing] != 6 || lost[schema.LossSpool] != 7 {
		t.Errorf("lost %v, want 6 in bulk rings and 7 in spools", lost)
	}
}

func TestEvictedRunsKeepTheirLosses(t *testing.T) {
	t.Parallel()
	r := newRuns()
	const total = 3 * maxRuns
	for run := range uint64(total) {
		h := schema.Header{Host: "h", Run: run, Seq: 1, Lost: [schema.NumLosses]uint64{schema.LossSpool: 1}}
		if last := r.of(&h).accept(&h); last != 0 {
			t.Fatalf("run %d was known", run)
		}
		// One run publishes all the time: it must not be forgotten.
		steady := schema.Header{Host: "steady", Seq: run + 1, Lost: [schema.NumLosses]uint64{schema.LossSpool: 5}}
		if last := r.of(&steady).accept(&steady); last != run {
			t.Fatalf("the steady run stands at %d, want %d", last, run)
		}
	}
	if n := len(r.young) + len(r.old); n > 2*maxRuns {
		t.Errorf("%d runs are remembered", n)
	}
	if got := r.lost()[schema.LossSpool]; got != total+5 {
		t.Errorf("%d lost, want %d", got, total+5)
	}
}

func TestHostsAreBounded(t *testing.T) {
	t.Parallel()
	h := hostTable{}
	at := func(i int) time.Time { return time.Unix(0, int64(i)) }
	for i := range maxHosts + 10 {
		h.record(&schema.Header{Host: fmt.Sprint(i)}, at(i+1), "", 0)
	}
	if len(h) != maxHosts || h[hostID{Host: "9"}] != nil || h[hostID{Host: "10"}] == nil {
		t.Errorf("%d hosts are remembered, want the last %d", len(h), maxHosts)
	}
	h.record(&schema.Header{Host: "x"}, at(maxHosts).Add(maxSilent), "", 0)
	gone := h.forgetSilent(at(maxHosts).Add(maxSilent + 1))
	if len(h) != 11 || len(gone) != maxHosts-11 || !slices.IsSortedFunc(gone, hostID.Compare) {
		t.Errorf("%d hosts are left a day later and %d gone, want the 11 that published later", len(h), len(gone))
	}
}

// TestEvictionIsDeterministic: of several hosts that were silent equally long, the same one is evicted in any map
// order.
func TestEvictionIsDeterministic(t *testing.T) {
	t.Parallel()
	for range 5 {
		h := hostTable{}
		now := time.Unix(1, 0)
		h.record(&schema.Header{Host: "a"}, now.Add(1), "", 0)
		for i := range maxHosts + 1 {
			h.record(&schema.Header{Host: fmt.Sprintf("h%05d", i)}, now, "", 0)
		}
		for name, stays := range map[string]bool{"a": true, "h00000": false, "h00001": false, "h00002": true,
			"h10000": true} {
			if (h[hostID{Host: name}] != nil) != stays {
				t.Errorf("%s is remembered: %v", name, !stays)
			}
		}
	}
}

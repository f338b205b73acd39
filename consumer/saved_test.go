package consumer

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// given is a message that no bus has stored.
type given struct {
	jetstream.Msg
	subject string
	data    []byte
	meta    jetstream.MsgMetadata
}

func (g given) Subject() string { return g.subject }
func (g given) Data() []byte    { return g.data }

// TestSilentHostsAreForgotten by the times at which the bus stored messages, and by nothing else: what a host says of time, a
// scrape, and a restart at any message change nothing.
func TestSilentHostsAreForgotten(t *testing.T) {
	const day = 24 * time.Hour
	began := time.Unix(0, 1_700_000_000_000_000_000)
	seqs := map[string]uint64{}
	var messages []given
	add := func(host string, at, ahead time.Duration) {
		h := headerAt(host, 2*seqs[host]+1, began.Add(at+ahead)) // every other batch is lost
		seqs[host]++
		messages = append(messages, given{
			subject: schema.Subject(0, "c", host, schema.KindMemory), data: encode(schema.KindMemory, h),
			meta: jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: uint64(len(messages) + 1)}, Timestamp: began.Add(at)},
		})
	}
	add("silent", 0, 0)
	for at := time.Duration(0); at < 30*time.Hour; at += 20 * time.Minute {
		add("good", at, 0)
		add("ahead", at, 2*day)
		add("behind", at, -2*day)
	}
	add("late", 31*time.Hour, 0)

	reader := func() (*Reader, Stateful) {
		fold := newChain()
		return NewReader(ReaderOptions{}, nil, fold, slog.New(slog.DiscardHandler)), fold
	}
	undisturbed, undisturbedFold := reader()
	disturbed, fold := reader()
	for i := range messages {
		m := &messages[i]
		undisturbed.step(m, &m.meta)
		disturbed.step(m, &m.meta)
		if i%7 == 0 {
			scrape(t, disturbed)
			var at manifest
			state, err := disturbed.checkpoint(nil, fold, &at)
			if err != nil {
				t.Fatal(err)
			}
			disturbed, fold = reader()
			if err := disturbed.restore(state, fold, nil); err != nil {
				t.Fatal(err)
			}
			disturbed.resume(&at)
		}
	}
	if h := undisturbed.hosts; len(h) != 4 || h[hostID{"c", "silent"}] != nil || h[hostID{"c", "good"}].gaps != 89 {
		t.Errorf("hosts %v, want all but the silent one, and 89 gaps of the good one", h)
	}
	want, err := undisturbed.save(nil, undisturbedFold)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := disturbed.save(nil, fold); err != nil || !bytes.Equal(got, want) {
		t.Errorf("scraped and restarted, the state is not that of an undisturbed reader: %v\n%x\n%x", err, got, want)
	}
}

// TestFirstForm: a state of the first form is read as what it says, of a host h with batches 1, 2 and 5. The host is heard of anew.
func TestFirstForm(t *testing.T) {
	state, err := hex.DecodeString("0103000000000102000000000003000000008580a8b1e39fe7cb17000100000000000000000101630168016201000500000000000000000000000101630168" +
		"8580a8b1e39fe7cb1701020163016809016c7ec8f851508d59")
	if err != nil {
		t.Fatal(err)
	}
	fold := newChain()
	r := NewReader(ReaderOptions{}, nil, fold, slog.New(slog.DiscardHandler))
	if err := r.restore(state, fold, nil); err != nil {
		t.Fatal(err)
	}
	h := r.hosts[hostID{"c", "h"}]
	if s := r.Stats(); s.Batches != 3 || s.Missing != 2 || h == nil || h.missing != 2 || !h.last.Equal(s.LastEvent) || !h.heard.IsZero() {
		t.Fatalf("%+v, host %+v", s, h)
	}
	now := time.Now()
	r.goOnTo(now)
	if !h.heard.Equal(now) || len(r.hosts) != 1 {
		t.Errorf("%d hosts, heard of at %s", len(r.hosts), h.heard)
	}
	want := link(link(link(0, 1, 1), 1, 2), 1, 5)
	if got := fold.(*chain).hosts[hostID{"c", "h"}]; got != want {
		t.Errorf("the fold holds %d, want %d", got, want)
	}
}

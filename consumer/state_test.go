package consumer

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
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

// forgetting is a chain with Forget and Lost. It records the calls outside of its state.
type forgetting struct {
	*chain
	gone []string
	lost []string
}

func newForgetting() Stateful { return &forgetting{chain: newChain().(*chain)} }

func (f *forgetting) Forget(cluster, host string) {
	delete(f.hosts, hostID{Cluster: cluster, Host: host})
	f.gone = append(f.gone, host)
}

func (f *forgetting) Lost(_, host, _ string, _ uint64) { f.lost = append(f.lost, host) }

// TestSilentHostsAreForgotten: the time when NATS stored messages decides, nothing else. Event times, scrapes and
// restarts do not matter.
func TestSilentHostsAreForgotten(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	began := time.Unix(0, 1_700_000_000_000_000_000)
	seqs := map[string]uint64{}
	var messages []given
	add := func(host string, at, ahead time.Duration) {
		h := headerAt(host, 2*seqs[host]+1, began.Add(at+ahead)) // every other batch is lost
		seqs[host]++
		messages = append(messages, given{
			subject: schema.Subject(0, "c", host, schema.KindMemory), data: encode(schema.KindMemory, h),
			meta: jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: uint64(len(messages) + 1)},
				Timestamp: began.Add(at)},
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
		fold := newForgetting()
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
			state, err := disturbed.State(fold)
			at := disturbed.position()
			if err != nil {
				t.Fatal(err)
			}
			disturbed, fold = reader()
			if err := disturbed.restore(state, fold, nil); err != nil {
				t.Fatal(err)
			}
			disturbed.resume(at)
		}
	}
	if h := undisturbed.hosts; len(h) != 4 || h[hostID{Cluster: "c", Host: "silent"}] != nil ||
		h[hostID{Cluster: "c", Host: "good"}].gaps != 89 {
		t.Errorf("hosts %v, want all but the silent one, and 89 gaps of the good one", h)
	}
	if f := undisturbedFold.(*forgetting); !slices.Equal(f.gone, []string{"silent"}) || len(f.hosts) != 4 {
		t.Errorf("the fold forgot %v, and holds %d hosts; want the silent one, and the other 4", f.gone, len(f.hosts))
	}
	want, err := undisturbed.State(undisturbedFold)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := disturbed.State(fold); err != nil || !bytes.Equal(got, want) {
		t.Errorf("scraped and restarted, the state is not that of an undisturbed reader: %v\n%x\n%x", err, got, want)
	}
}

// heardAt is a batch of a host, stored at an hour.
type heardAt struct {
	host string
	hour float64
}

// TestForgetAndLostCalls: the fold forgets hosts that were silent while others were not, and gets a loss when one
// comes back.
func TestForgetAndLostCalls(t *testing.T) {
	t.Parallel()
	const day = 24.0
	steady := func(from, to float64) (all []heardAt) {
		for ; from < to; from += 0.5 {
			all = append(all, heardAt{"x", from})
		}
		return all
	}
	three := []heardAt{{"c", 0}, {"b", 0.01}, {"a", 0.02}}
	silent := append(three, steady(0.5, day+2)...)
	tests := []struct {
		name       string
		batches    []heardAt
		gone, lost []string
	}{
		{"in the order of names", silent, []string{"a", "b", "c"}, nil},
		{"one comes back", append(silent, heardAt{"b", day + 2}, heardAt{"b", day + 2.1}, heardAt{"new", day + 2.2}),
			[]string{"a", "b", "c"}, []string{"b"}},
		{"the bus was away", append(three, append(steady(5*day, 5*day+10), heardAt{"b", 5*day + 10})...), nil, nil},
		{"and one stayed away", append(three, append(steady(5*day-0.25, 6*day+2), heardAt{"b", 6*day + 2})...),
			[]string{"a", "b", "c"}, []string{"b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fold, seqs := newForgetting().(*forgetting), map[string]uint64{}
			r := NewReader(ReaderOptions{}, nil, fold, slog.New(slog.DiscardHandler))
			for i, b := range test.batches {
				seqs[b.host]++
				at := time.Unix(1_700_000_000, 0).Add(time.Duration(b.hour * float64(time.Hour)))
				m := given{
					subject: schema.Subject(0, "c", b.host, schema.KindMemory), data: encode(schema.KindMemory,
						headerAt(b.host, seqs[b.host], at)),
					meta: jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: uint64(i + 1)}, Timestamp: at},
				}
				r.step(m, &m.meta)
			}
			if !slices.Equal(fold.gone, test.gone) || !slices.Equal(fold.lost, test.lost) {
				t.Errorf("the fold forgot %v and of losses of %v, want %v and %v", fold.gone, fold.lost, test.gone,
					test.lost)
			}
		})
	}
}

// TestTooManyHostsAreEvicted: the fold forgets evicted hosts, and gets a loss when one comes back. A restart does
// not matter. After a merge of shards, the surplus goes when the next new host comes.
func TestTooManyHostsAreEvicted(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	reader := func() (*Reader, *forgetting) {
		fold := newForgetting().(*forgetting)
		return NewReader(ReaderOptions{}, nil, fold, slog.New(slog.DiscardHandler)), fold
	}
	seqs, stored := map[string]uint64{}, uint64(0)
	send := func(host string, to ...*Reader) {
		seqs[host]++
		stored++
		at := began.Add(time.Duration(stored) * time.Millisecond)
		m := given{
			subject: schema.Subject(0, "c", host, schema.KindMemory), data: encode(schema.KindMemory,
				headerAt(host, seqs[host], at)),
			meta: jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: stored}, Timestamp: at},
		}
		for _, r := range to {
			r.step(&m, &m.meta)
		}
	}
	saved := func(r *Reader, fold *forgetting) []byte {
		t.Helper()
		state, err := r.State(fold)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.hosts) != maxHosts || len(fold.hosts) != maxHosts {
			t.Errorf("%d hosts are remembered, and the fold holds %d; want %d", len(r.hosts), len(fold.hosts), maxHosts)
		}
		return state
	}
	undisturbed, fold := reader()
	for i := range maxHosts + 3 {
		send(fmt.Sprintf("h%05d", i), undisturbed)
	}
	state := saved(undisturbed, fold)
	disturbed, other := reader()
	if err := disturbed.restore(state, other, nil); err != nil {
		t.Fatal(err)
	}
	disturbed.resume(bus.Position{Sequence: stored, Stored: began.Add(time.Duration(stored) * time.Millisecond)})
	send("new", undisturbed, disturbed)
	send("h00001", undisturbed, disturbed)
	if !bytes.Equal(saved(undisturbed, fold), saved(disturbed, other)) {
		t.Error("restarted, the state is not that of an undisturbed reader")
	}
	if want := []string{"h00000", "h00001", "h00002", "h00003", "h00004"}; !slices.Equal(fold.gone, want) ||
		!slices.Equal(fold.lost, []string{"h00001"}) {
		t.Errorf("the fold forgot %v, want %v, and of losses of %v", fold.gone, want, fold.lost)
	}

	joined, fold := reader()
	another, fewer := reader()
	for _, host := range []string{"a", "b", "c"} {
		send(host, another)
	}
	more, err := another.State(fewer)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range [][]byte{state, more} {
		if err := joined.restore(state, fold, func(string, string) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	send("last", joined)
	saved(joined, fold)
}

// TestHostWithoutClusterIsInherited: any name of a host will do.
func TestHostWithoutClusterIsInherited(t *testing.T) {
	t.Parallel()
	before := newForgetting().(*forgetting)
	before.hosts[hostID{Host: "h"}] = 1
	first := NewReader(ReaderOptions{}, nil, before, slog.New(slog.DiscardHandler))
	first.hosts[hostID{Host: "h"}] = &hostState{}
	state, err := first.State(before)
	if err != nil {
		t.Fatal(err)
	}
	fold := newForgetting().(*forgetting)
	r := NewReader(ReaderOptions{}, nil, fold, slog.New(slog.DiscardHandler))
	if err := r.restore(state, fold, func(_, host string) bool { return host == "h" }); err != nil {
		t.Fatal(err)
	}
	if id := (hostID{Host: "h"}); fold.hosts[id] != 1 || r.hosts[id] == nil {
		t.Errorf("inherited are %v, and the reader knows %v; want the host in both", fold.hosts, r.hosts)
	}
}

// TestLossesOfEvictedRunsAreSaved: by cause.
func TestLossesOfEvictedRunsAreSaved(t *testing.T) {
	t.Parallel()
	before := NewReader(ReaderOptions{}, nil, newChain(), slog.New(slog.DiscardHandler))
	for cause := range before.runs.forgotten {
		before.runs.forgotten[cause] = uint64(cause) + 1
	}
	state, err := before.State(newChain())
	if err != nil {
		t.Fatal(err)
	}
	fold := newChain()
	after := NewReader(ReaderOptions{}, nil, fold, slog.New(slog.DiscardHandler))
	if err := after.restore(state, fold, nil); err != nil {
		t.Fatal(err)
	}
	if after.runs.forgotten != before.runs.forgotten || after.Lost() != before.Lost() {
		t.Errorf("%v are restored, want %v", after.runs.forgotten, before.runs.forgotten)
	}
}

package consumer

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// replayed returns messages of four hosts, with a lost batch, a duplicate, a useless message and a restart.
func replayed(n int) (all []recording.Message) {
	began := time.Unix(1_700_000_000, 0)
	seqs := map[string]uint64{}
	for i := range n {
		host := fmt.Sprint("h", i%4)
		if host == "h3" && i > 8 { // it is silent for more than a day
			host = "h0"
		}
		switch {
		case i == n/3: // this batch is lost
			seqs[host]++
		case i%10 == 9:
			seqs[host]-- // a duplicate
		}
		seqs[host]++
		at := began.Add(time.Duration(i) * 10 * time.Minute)
		h := headerAt(host, seqs[host], at)
		m := recording.Message{
			Sequence: uint64(2 * (i + 1)), Stored: at, Subject: schema.Subject(0, "c", host, schema.KindMemory),
			Data: encode(schema.KindMemory, h),
		}
		if i == n/2 {
			m.Data = []byte("useless")
		}
		all = append(all, m)
	}
	return all
}

func sectionsOf(t *testing.T, p *Replay) (all []recording.Section) {
	t.Helper()
	if err := p.Sections(func(s recording.Section) error {
		s.Data = bytes.Clone(s.Data)
		all = append(all, s)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReplayEqualsReader gives the same messages to a Reader, and to a Replay that is saved and restored at every
// message.
func TestReplayEqualsReader(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	all := replayed(220)
	live := newForgetting()
	r := NewReader(ReaderOptions{}, nil, live, log)
	p := NewReplay(0, newForgetting(), true, log)
	for i := range all {
		m := given{
			subject: all[i].Subject, data: all[i].Data, meta: jetstream.MsgMetadata{
				Sequence: jetstream.SequencePair{Stream: all[i].Sequence}, Timestamp: all[i].Stored},
		}
		if len(m.data) < 10 { // a Reader would store a dead letter, and there is no NATS
			m.subject = "gputap.v1.ev.0.c.h0.sync"
			r.stats.Invalid++
		}
		r.step(m, &m.meta)
		p.Apply(&all[i])
		p.Apply(&all[i]) // again: skipped
		next := NewReplay(0, newForgetting(), true, log)
		for _, s := range sectionsOf(t, p) {
			if err := next.Restore(s); err != nil {
				t.Fatal(err)
			}
		}
		p = next
		want, err := r.State(live)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.reader.State(p.fold); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after message %d the state differs: %+v, want %+v, %v", i, p.reader.Stats(), r.Stats(), err)
		}
	}
	if !p.Whole() || r.Stats().Missing == 0 || r.Stats().Duplicates == 0 || len(r.hosts) != 3 {
		t.Errorf("whole %t, %d hosts, %+v", p.Whole(), len(r.hosts), r.Stats())
	}
}

// TestReplayOfSelectedHosts restores the sections of one host, and a checkpoint of which it takes one host.
func TestReplayOfSelectedHosts(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	all := replayed(40)
	only := slices.DeleteFunc(slices.Clone(all), func(m recording.Message) bool {
		return m.Subject != "gputap.v1.ev.0.c.h2.memory"
	})
	whole, direct := NewReplay(0, newChain(), true, log), NewReplay(0, newChain(), true, log)
	for i := range all {
		whole.Apply(&all[i])
	}
	for i := range only {
		direct.Apply(&only[i])
	}
	want := sectionsOf(t, direct)[1]
	bySection := NewReplay(0, newChain(), true, log)
	for _, s := range sectionsOf(t, whole) {
		if s.Host == "h2" {
			if err := bySection.Restore(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	state, err := whole.reader.State(whole.fold)
	if err != nil {
		t.Fatal(err)
	}
	byCheckpoint := NewReplay(0, newChain(), true, log)
	if err := byCheckpoint.RestoreCheckpoint(state, func(_, host string) bool { return host == "h2" }); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Replay{"by section": bySection, "by checkpoint": byCheckpoint} {
		got := sectionsOf(t, p)
		if len(got) != 2 || got[1].Host != "h2" || !bytes.Equal(got[1].Data, want.Data) {
			t.Errorf("%s: %d sections, or the section of the host differs", name, len(got))
		}
	}
	if err := bySection.Restore(recording.Section{Fold: "other"}); err == nil {
		t.Error("Restore accepts a section of another fold")
	}
}

// TestReplayOfAPart counts batches from before the first one as lost only if the replay is whole.
func TestReplayOfAPart(t *testing.T) {
	t.Parallel()
	all := replayed(40)[20:]
	for _, whole := range []bool{true, false} {
		p := NewReplay(0, newChain(), whole, slog.New(slog.DiscardHandler))
		for i := range all {
			p.Apply(&all[i])
		}
		s := p.reader.Stats()
		if p.Whole() != whole || (s.Missing > 0) != whole || (s.Retention > 0) == whole {
			t.Errorf("whole %t: %+v", whole, s)
		}
	}
}

// TestReplayOfCoveredKinds continues a state that covers memory events alone: a hole in them is lost, and batches of
// another kind from before the first one are not.
func TestReplayOfCoveredKinds(t *testing.T) {
	t.Parallel()
	log, at := slog.New(slog.DiscardHandler), time.Unix(1_700_000_000, 0)
	message := func(sequence uint64, kind schema.Kind, seq uint64) *recording.Message {
		return &recording.Message{Sequence: sequence, Stored: at, Subject: schema.Subject(0, "c", "h", kind),
			Data: encode(kind, headerAt("h", seq, at))}
	}
	before := NewReplay(0, newChain(), true, log)
	before.Apply(message(1, schema.KindMemory, 1))
	before.Apply(message(2, schema.KindHost, 1)) // the last one that this state knows of
	p := NewReplay(0, newChain(), true, log)
	p.WholeFor(schema.KindMemory)
	for _, s := range sectionsOf(t, before) {
		if err := p.Restore(s); err != nil {
			t.Fatal(err)
		}
	}
	p.Apply(message(8, schema.KindHost, 5))
	p.Apply(message(9, schema.KindMemory, 4))
	p.Apply(message(10, schema.KindHost, 7))
	if s := p.Reader().Stats(); s.Missing != 3 || s.Gaps != 2 || s.Retention != 4 {
		t.Errorf("%+v", s)
	}
	p.ShowHeard(time.Hour)
	if heard := p.Reader().Heard("c", "h"); !heard.Equal(at.Add(time.Hour)) {
		t.Errorf("heard at %s", heard)
	}
}

package recording

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// batch is an encoded batch with so many events.
func batch(cluster, host string, kind schema.Kind, seq uint64, events int) []byte {
	b := schema.NewBuilder(kind)
	process := b.Process(schema.Process{PID: 7, Start: 1, Comm: "train"})
	thread := b.Thread(schema.Thread{Process: process, TID: 7})
	call := b.Call(schema.CallRef{Symbol: "cuStreamSynchronize"})
	stream := b.CUDAStream(0)
	for i := range events {
		b.AddSync(&schema.Sync{Time: schema.KTime(1000 + i), Thread: thread, Call: call, CUDAStream: stream})
	}
	return bytes.Clone(b.Encode(&schema.Header{Cluster: cluster, Host: host, BootID: "b", Run: 1, Seq: seq}))
}

// traffic returns messages of several shards, hosts and kinds. One is not a batch.
func traffic(n int) (all []Message) {
	rng := rand.New(rand.NewPCG(1, 2))
	sequences := map[int]uint64{}
	for i := range n {
		shard := rng.IntN(3)
		sequences[shard] += 1 + rng.Uint64N(3)
		host, kind := fmt.Sprint("gpu-", rng.IntN(4)), schema.KindSync
		if rng.IntN(3) == 0 {
			kind = schema.KindHost
		}
		cluster := fmt.Sprint("c", shard)
		m := Message{
			Shard: shard, Sequence: sequences[shard], Stored: start.Add(time.Duration(i) * time.Second),
			Subject: schema.Subject(shard, cluster, host, kind),
		}
		if m.Data = []byte("not a batch"); i > 0 {
			events := 0
			if kind == schema.KindSync {
				events = 1 + rng.IntN(5)
			}
			m.Data = batch(cluster, host, kind, uint64(i), events)
		}
		all = append(all, m)
	}
	return all
}

var streams = []Stream{
	{Shard: 0, Name: "GPUTAP_EV_000", Created: start, After: 0, State: KnowledgeComplete},
	{Shard: 1, Name: "GPUTAP_EV_001", Created: start, State: KnowledgePartial, Since: start.Add(-time.Hour)},
	{Shard: 2, Name: "GPUTAP_EV_002", Created: start.Add(1), State: KnowledgeNone},
}

var sections = []Section{
	{Fold: "leak", Form: 1, Shard: 1, Sequence: 9, Data: []byte("all hosts")},
	{Fold: "leak", Form: 1, Shard: 1, Sequence: 9, Stored: start, Cluster: "c", Host: "gpu-1", Data: []byte{1, 2, 3}},
	{Fold: "leak", Form: 1, Shard: 2, Sequence: 4, Cluster: "c", Host: "gpu-2", Data: []byte{}},
}

// write writes a recording, a block for each so many messages.
func write(t testing.TB, all []Message, each int) []byte {
	var out bytes.Buffer
	w, err := NewWriter(&out)
	check(t, err)
	writeBeginning(t, w)
	writeMessages(t, w, all, each)
	check(t, w.Close())
	if w.Bytes() != int64(out.Len()) {
		t.Errorf("Bytes is %d, want %d", w.Bytes(), out.Len())
	}
	return out.Bytes()
}

func writeBeginning(t testing.TB, w *Writer) {
	for _, s := range sections {
		check(t, w.AddSection(s))
	}
	check(t, w.AddStreams(Selection{Cluster: "", Kinds: []schema.Kind{schema.KindSync, schema.KindHost}}, streams))
}

func writeMessages(t testing.TB, w *Writer, all []Message, each int) {
	for i := range all {
		check(t, w.Append(&all[i]))
		if (i+1)%each == 0 {
			check(t, w.Flush())
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func memory(data []byte) *Reader { return new(Reader).over(data) }

// over makes a reader read other bytes.
func (r *Reader) over(data []byte) *Reader {
	r.file, r.size = bytes.NewReader(data), func() (int64, error) { return int64(len(data)), nil }
	return r
}

// read returns the selected messages and the damages.
func read(t testing.TB, r *Reader, f Filter) (all []Message, damages []*Damage) {
	t.Helper()
	for m, err := range r.Messages(f) {
		if d, isDamage := errors.AsType[*Damage](err); isDamage {
			damages = append(damages, d)
			continue
		}
		check(t, err)
		m.Data = bytes.Clone(m.Data)
		all = append(all, m)
	}
	return all, damages
}

func equal(a, b []Message) bool {
	return slices.EqualFunc(a, b, func(a, b Message) bool { return reflect.DeepEqual(a, b) })
}

func TestReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	all := traffic(100)
	r := memory(write(t, all, 7))
	if got, damages := read(t, r, Filter{}); !equal(got, all) || damages != nil {
		t.Errorf("%d messages, damages %v, want %d", len(got), damages, len(all))
	}
	var state []Section
	for s, err := range r.State() {
		check(t, err)
		state = append(state, s)
	}
	state[2].Data = []byte{} // nil and empty are the same
	if !reflect.DeepEqual(state, sections) {
		t.Errorf("state %v, want %v", state, sections)
	}
	selection, got, err := r.Streams()
	check(t, err)
	if !reflect.DeepEqual(got, streams) || !selection.Equal(&Selection{Kinds: []schema.Kind{schema.KindHost,
		schema.KindSync}}) {
		t.Errorf("streams %+v of %+v", got, selection)
	}
}

// TestSummaries compares the sums of all summaries with counts over the messages.
func TestSummaries(t *testing.T) {
	t.Parallel()
	all := traffic(100)
	messages, events := map[string]uint64{}, map[string]uint64{}
	shards := map[int]Range{}
	for i, m := range all {
		kind := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		messages[kind]++
		var b schema.Batch
		if i > 0 {
			check(t, schema.NewDecoder().Decode(m.Data, &b))
		}
		events[kind] += uint64(b.Events)
		r, known := shards[m.Shard]
		if !known {
			r = Range{Shard: m.Shard, First: m.Sequence}
		}
		r.Last = m.Sequence
		r.Messages++
		shards[m.Shard] = r
	}
	gotShards := map[int]Range{}
	at := int64(len(head))
	for b, err := range memory(write(t, all, 9)).Blocks() {
		check(t, err)
		if b.Offset != at {
			t.Errorf("block at %d, want %d", b.Offset, at)
		}
		at += b.Bytes
		for _, k := range b.Kinds {
			messages[k.Kind] -= k.Messages
			events[k.Kind] -= k.Events
		}
		for _, r := range b.Shards {
			if before, known := gotShards[r.Shard]; known {
				r.First, r.Messages = before.First, r.Messages+before.Messages
			}
			gotShards[r.Shard] = r
		}
	}
	for kind, n := range messages {
		if n != 0 || events[kind] != 0 {
			t.Errorf("%s: the summaries lack %d messages and %d events", kind, n, events[kind])
		}
	}
	if !reflect.DeepEqual(gotShards, shards) {
		t.Errorf("shards %v, want %v", gotShards, shards)
	}
}

// TestFilter compares each filter with a loop over the messages.
func TestFilter(t *testing.T) {
	t.Parallel()
	all := traffic(200)
	r := memory(write(t, all, 5))
	token := func(m *Message, i int) string { return strings.Split(m.Subject, ".")[i] }
	tests := []struct {
		name string
		f    Filter
		want func(m *Message) bool
	}{
		{"since", Filter{Since: all[50].Stored}, func(m *Message) bool { return !m.Stored.Before(all[50].Stored) }},
		{"until", Filter{Until: all[50].Stored}, func(m *Message) bool { return m.Stored.Before(all[50].Stored) }},
		{"shards", Filter{Shards: []int{0, 2}}, func(m *Message) bool { return m.Shard != 1 }},
		{"host", Filter{Selection: Selection{Host: "gpu-2"}}, func(m *Message) bool { return token(m, 5) == "gpu-2" }},
		{"cluster", Filter{Selection: Selection{Cluster: "c1"}}, func(m *Message) bool { return token(m, 4) == "c1" }},
		{"kind", Filter{Selection: Selection{Kinds: []schema.Kind{schema.KindHost, schema.KindCopy}}},
			func(m *Message) bool { return token(m, 6) == "host" }},
		{"all of them",
			Filter{Selection{Cluster: "c1", Host: "gpu-1", Kinds: []schema.Kind{schema.KindSync}}, all[20].Stored,
				all[180].Stored, []int{1}},
			func(m *Message) bool {
				return !m.Stored.Before(all[20].Stored) && m.Stored.Before(all[180].Stored) &&
					m.Subject == "gputap.v1.ev.1.c1.gpu-1.sync"
			}},
		{"nothing", Filter{Selection: Selection{Host: "gpu"}}, func(*Message) bool { return false }},
	}
	for _, tt := range tests {
		var want []Message
		for i := range all {
			if tt.want(&all[i]) {
				want = append(want, all[i])
			}
		}
		if got, damages := read(t, r, tt.f); !equal(got, want) || damages != nil {
			t.Errorf("%s: %d messages, want %d", tt.name, len(got), len(want))
		}
	}
}

// TestFilterReadsSelectedBlocksOnly damages the contents of all blocks but one.
func TestFilterReadsSelectedBlocksOnly(t *testing.T) {
	t.Parallel()
	all := traffic(40)
	data := write(t, all, 10)
	var blocks []*Block
	for b, err := range memory(data).Blocks() {
		check(t, err)
		if b.Type == TypeMessages {
			blocks = append(blocks, b)
		}
	}
	for _, b := range slices.Concat(blocks[:2], blocks[3:]) {
		data[b.Offset+b.Bytes-1] ^= 1
	}
	f := Filter{Since: all[20].Stored, Until: all[30].Stored}
	if got, damages := read(t, memory(data), f); !equal(got, all[20:30]) || damages != nil {
		t.Errorf("%d messages, damages %v", len(got), damages)
	}
}

// TestLargeSection splits a section over blocks.
func TestLargeSection(t *testing.T) {
	t.Parallel()
	large := Section{Fold: "leak", Form: 1, Cluster: "c", Host: "h", Data: make([]byte, 3*blockBytes+5)}
	for i := range large.Data {
		large.Data[i] = byte(rand.Uint32())
	}
	small := Section{Fold: "leak", Form: 1, Cluster: "c", Host: "i", Data: []byte("x")}
	var out bytes.Buffer
	w, err := NewWriter(&out)
	check(t, err)
	check(t, w.AddSection(small))
	check(t, w.AddSection(large))
	check(t, w.AddSection(small))
	check(t, w.AddStreams(Selection{}, streams))
	check(t, w.Close())
	hosts := func(data []byte) (got string) {
		for s, err := range memory(data).State() {
			if err != nil {
				got += "!"
				continue
			}
			if s.Host == "h" && !bytes.Equal(s.Data, large.Data) {
				t.Error("the large section differs")
			}
			got += s.Host
		}
		return got
	}
	if got := hosts(out.Bytes()); got != "ihi" {
		t.Errorf("sections of %s", got)
	}
	damaged := bytes.Clone(out.Bytes())
	damaged[len(damaged)/2] ^= 1
	if got := hosts(damaged); got != "i!i" {
		t.Errorf("with a damaged block in the middle: %s", got)
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	check(t, os.WriteFile(other, []byte("#!/bin/sh\n# a script that is longer than a head\n"), 0o644))
	short := filepath.Join(dir, "short")
	check(t, os.WriteFile(short, []byte("x"), 0o644))
	newer := filepath.Join(dir, "newer")
	check(t, os.WriteFile(newer, []byte(head[:len(head)-1]+"\x02"), 0o644))
	locked := filepath.Join(dir, "locked")
	w, _, err := Append(locked)
	check(t, err)
	defer w.Close()
	for path, want := range map[string]string{
		other: "not a recording", short: "not a recording", newer: "form 2", locked: "another program writes it",
		dir: "is a directory", "/dev/null": "not a regular file",
	} {
		before, _ := os.ReadFile(path)
		if _, _, err := Append(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s was changed", path)
		}
	}
	for _, path := range []string{other, short, newer} {
		if _, err := Open(path); err == nil {
			t.Errorf("%s: Open returns no error", path)
		}
	}
}

// TestOpenRefusesPipes: the open of a named pipe without a writer would block for ever.
func TestOpenRefusesPipes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	check(t, unix.Mkfifo(pipe, 0o600))
	const notRegular = "it is not a regular file; write it into a file first, and name that file"
	for path, reason := range map[string]string{pipe: notRegular, "/dev/null": notRegular,
		dir: "it is a directory; name a file in it, such as run.gputap or report.sqlite"} {
		want := "open the recording: open " + path + ": " + reason
		if _, err := Open(path); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func TestWriterRefusesMessages(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, err := NewWriter(&out)
	check(t, err)
	all := traffic(10)
	writeMessages(t, w, all, 100)
	if err := w.Append(&all[9]); err == nil || !strings.Contains(err.Error(), "already recorded") {
		t.Errorf("the same message again: %v", err)
	}
	long := Message{Shard: 9, Sequence: 1, Stored: start, Data: make([]byte, schema.MaxMessageBytes+1)}
	if err := w.Append(&long); !errors.Is(err, ErrTooLong) {
		t.Errorf("a long message: %v", err)
	}
	long.Data = long.Data[:schema.MaxMessageBytes]
	check(t, w.Append(&long))
	check(t, w.Close())
	if got, damages := read(t, memory(out.Bytes()), Filter{}); !equal(got, append(all, long)) || damages != nil {
		t.Errorf("%d messages, damages %v", len(got), damages)
	}
}

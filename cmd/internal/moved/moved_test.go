package moved

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

func message(shard int, sequence uint64, host string) recording.Message {
	return recording.Message{Shard: shard, Sequence: sequence, Subject: schema.Subject(shard, "c", host,
		schema.KindMemory)}
}

func items[T any](list ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}

func streams(numbers ...int) (list []recording.Stream) {
	for _, n := range numbers {
		list = append(list, recording.Stream{Shard: n, State: recording.KnowledgeComplete})
	}
	return list
}

// TestGroups: the messages of a host in one shard come before those in the next one.
func TestGroups(t *testing.T) {
	t.Parallel()
	const all = "[[]]"
	for name, row := range map[string]struct {
		shards map[string][]int // of hosts
		want   string
	}{
		"one generation":       {map[string][]int{"a": {0}, "b": {1}, "c": {4}}, all},
		"no host":              {nil, all},
		"two generations":      {map[string][]int{"a": {0, 3}, "b": {1, 2}, "c": {1}, "d": {4}}, "[[0 1] [2 3 4]]"},
		"a hidden boundary":    {map[string][]int{"a": {0, 4}}, "[[0 1 2 3] [4]]"},
		"three generations":    {map[string][]int{"a": {0, 1, 3}, "b": {0, 2}, "c": {2, 3}}, "[[0] [1 2] [3 4]]"},
		"a generation between": {map[string][]int{"a": {0, 3}, "b": {0, 2}, "c": {1, 4}}, "[[0 1] [2 3 4]]"},
	} {
		var list []recording.Message
		for host, numbers := range row.shards {
			for _, n := range numbers {
				list = append(list, message(n, 1, host))
			}
		}
		h, err := Find(streams(0, 1, 2, 3, 4), items[recording.Section](), items(list...))
		if err != nil || fmt.Sprint(h.Groups()) != row.want {
			t.Errorf("%s: %v, %v, want %s", name, h.Groups(), err, row.want)
		}
	}
}

// TestManyGenerations: a hostile file does not make its reader read it once for each message.
func TestManyGenerations(t *testing.T) {
	t.Parallel()
	var list []recording.Message
	for n := range 5000 {
		list = append(list, message(n, 1, "a"))
	}
	h, err := Find(nil, items[recording.Section](), items(list...))
	if err != nil || len(h.Groups()) != mostGroups || len(h.Groups()[0]) != 1 {
		t.Errorf("%d groups, %v", len(h.Groups()), err)
	}
}

// TestLane: a lane has the messages of one shard after those of the other, with sequences that rise, and the state of
// the first shard.
func TestLane(t *testing.T) {
	t.Parallel()
	state := []recording.Section{{Shard: 0, Sequence: 7}, {Shard: 0, Sequence: 7, Cluster: "c", Host: "a"},
		{Shard: 0, Sequence: 7, Cluster: "c", Host: "s"}, {Shard: 2, Cluster: "c", Host: "a"},
		{Shard: 2, Cluster: "c", Host: "x.y"}, {Shard: 2}}
	list := []recording.Message{message(0, 8, "a"), message(0, 9, "s"), message(0, 10, "a"), message(2, 1, "a"),
		message(2, 2, "n"), message(2, 3, "a")}
	all := streams(0, 2)
	all[0].After = 7
	h, err := Find(all, items(state...), items(list...))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range state {
		l, s := h.OfSection(&s)
		if l == nil {
			got = append(got, fmt.Sprint(s.Host, " left out"))
			continue
		}
		got = append(got, fmt.Sprint(s.Host, " ", l.Stream.Shard, l.Shard(), s.Shard, " ", s.Sequence))
	}
	for _, m := range list {
		l, m := h.Of(&m)
		got = append(got, fmt.Sprint(m.Subject, " ", l.Stream.Shard, l.Shard(), m.Shard, " ", m.Sequence))
	}
	want := []string{" 0 0 0 7", "a 0 2 2 7", "s 0 0 0 7", "a left out", "x.y 2 2 2 0", " 2 2 2 0",
		"gputap.v1.ev.2.c.a.memory 0 2 2 8", "gputap.v1.ev.0.c.s.memory 0 0 0 9",
		"gputap.v1.ev.2.c.a.memory 0 2 2 10", "gputap.v1.ev.2.c.a.memory 0 2 2 11",
		"gputap.v1.ev.2.c.n.memory 2 2 2 2", "gputap.v1.ev.2.c.a.memory 0 2 2 13"}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	if inherits := h.Inherits(items(state...)); len(inherits) != 1 || !inherits[2] {
		t.Errorf("shards with hosts of others: %v, want that with x.y", inherits)
	}
	var shards [][]int
	for _, l := range h.Lanes(all) {
		shards = append(shards, l.shards)
	}
	if fmt.Sprint(shards) != "[[0] [0 2] [2]]" {
		t.Errorf("lanes of %v", shards)
	}
}

// TestNoMove reads no message if the recording begins in the middle of all shards.
func TestNoMove(t *testing.T) {
	t.Parallel()
	all := streams(4, 5, 6)
	all[1].After, all[2].After = 1, 9
	failing := func(yield func(recording.Message, error) bool) { yield(recording.Message{}, errors.New("read")) }
	for name, row := range map[string]struct {
		streams []recording.Stream
		reads   bool
	}{
		"one shard": {all[:1], false}, "the middle": {all, false}, "unknown": {nil, true},
		"added": {append(slices.Clone(all), streams(7)...), true},
	} {
		if _, err := Find(row.streams, items[recording.Section](), failing); (err != nil) != row.reads {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStreams: a shard that was added during the recording is known as well as those before it.
func TestStreams(t *testing.T) {
	t.Parallel()
	const complete, partial, none = recording.KnowledgeComplete, recording.KnowledgePartial, recording.KnowledgeNone
	at := time.Unix(100, 0)
	one := func(k recording.Knowledge, after uint64) recording.Stream {
		s := recording.Stream{State: k, After: after}
		if k == partial {
			s.Since = at
		}
		return s
	}
	for name, row := range map[string]struct {
		kinds []schema.Kind
		list  []recording.Stream
		want  recording.Knowledge // of the last one
	}{
		"complete":            {nil, []recording.Stream{one(complete, 5), one(none, 0)}, complete},
		"twice":               {nil, []recording.Stream{one(complete, 5), one(none, 0), one(none, 0)}, complete},
		"partial":             {nil, []recording.Stream{one(complete, 5), one(partial, 4), one(none, 0)}, partial},
		"none":                {nil, []recording.Stream{one(none, 5), one(complete, 4), one(none, 0)}, none},
		"messages are absent": {nil, []recording.Stream{one(complete, 5), one(none, 3)}, none},
		"the only one":        {nil, []recording.Stream{one(none, 0)}, none},
		"without memory":      {[]schema.Kind{schema.KindCopy}, []recording.Stream{one(none, 0), one(none, 0)}, none},
		"with memory": {[]schema.Kind{schema.KindHost, schema.KindMemory},
			[]recording.Stream{one(complete, 0), one(none, 0)}, complete},
	} {
		for i := range row.list {
			row.list[i].Shard = i
		}
		got := Streams(row.list, row.kinds)
		last := got[len(got)-1]
		if last.State != row.want || last.Since.IsZero() == (row.want == partial) {
			t.Errorf("%s: %s since %s, want %s", name, last.State, last.Since, row.want)
		}
	}
}

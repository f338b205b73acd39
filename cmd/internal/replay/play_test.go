package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// message returns a message that was stored some time after start.
func message(shard int, sequence uint64, after time.Duration) recording.Message {
	return recording.Message{Shard: shard, Sequence: sequence, Stored: start.Add(after),
		Subject: schema.Subject(shard, "c", fmt.Sprint("h", shard), schema.KindCopy), Data: []byte{byte(sequence)}}
}

// write writes a recording of these messages, each in a block of its own.
func write(t *testing.T, messages ...recording.Message) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "test.gtr")
	w, _, err := recording.Append(path)
	check(t, err)
	var streams []recording.Stream
	for _, m := range messages {
		if !slices.ContainsFunc(streams, func(s recording.Stream) bool { return s.Shard == m.Shard }) {
			streams = append(streams, recording.Stream{Shard: m.Shard, Name: schema.StreamName(m.Shard), Created: start,
				State: recording.KnowledgeComplete})
		}
	}
	check(t, w.AddStreams(recording.Selection{}, streams))
	for i := range messages {
		check(t, w.Append(&messages[i]))
		check(t, w.Flush())
	}
	check(t, w.Close())
	return path
}

func open(t *testing.T, path string, s recording.Selection) *File {
	t.Helper()
	f, err := Open(path, s, discard)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestSchedule checks when messages are delivered, in the time of the bubble.
func TestSchedule(t *testing.T) {
	t.Parallel()
	second := func(s ...float64) (list []time.Duration) {
		for _, one := range s {
			list = append(list, time.Duration(one*float64(time.Second)))
		}
		return list
	}
	stored := second(0, 1, 1, 3, 63, 62, 64)
	tests := []struct {
		name string
		pace Pace
		slow time.Duration // of the receiver
		want []time.Duration
	}{
		{"as fast as possible", Pace{}, 0, second(0, 0, 0, 0, 0, 0, 0)},
		{"as recorded", Pace{Speed: 1}, 0, second(0, 1, 1, 3, 63, 63, 64)},
		{"twice as fast", Pace{Speed: 2}, 0, second(0, 0.5, 0.5, 1.5, 31.5, 31.5, 32)},
		{"slower", Pace{Speed: 0.5}, 0, second(0, 2, 2, 6, 126, 126, 128)},
		{"short pauses", Pace{Speed: 1, MaxIdle: 5 * time.Second}, 0, second(0, 1, 1, 3, 8, 8, 9)},
		{"short pauses, twice as fast", Pace{Speed: 2, MaxIdle: 5 * time.Second}, 0,
			second(0, 0.5, 0.5, 1.5, 6.5, 6.5, 7)},
		{"a late message does not delay the others", Pace{Speed: 1}, 2500 * time.Millisecond,
			second(0, 2.5, 2.5, 5, 63, 63, 65.5)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var messages []recording.Message
			for i, after := range stored {
				messages = append(messages, message(0, uint64(i+1), after))
			}
			path := write(t, messages...)
			synctest.Test(t, func(t *testing.T) {
				f := open(t, path, recording.Selection{})
				began, got := time.Now(), []time.Duration{}
				p := newPlayer(f, tt.pace, func(list []recording.Message) error {
					for _, m := range list {
						if want := byte(len(got) + 1); m.Data[0] != want {
							t.Errorf("message %d comes as number %d", m.Data[0], want)
						}
						got = append(got, time.Since(began))
					}
					time.Sleep(tt.slow)
					return nil
				})
				check(t, p.run(t.Context()))
				if !slices.Equal(got, tt.want) {
					t.Errorf("%v, want %v", got, tt.want)
				}
				s := p.Stats()
				if s.Messages != 7 || !s.First.Equal(start) || !s.Last.Equal(start.Add(64*time.Second)) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestEndOfContext ends a replay while it waits.
func TestEndOfContext(t *testing.T) {
	t.Parallel()
	path := write(t, message(0, 1, 0), message(0, 2, time.Hour))
	synctest.Test(t, func(t *testing.T) {
		f := open(t, path, recording.Selection{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := newPlayer(f, Pace{Speed: 1}, func([]recording.Message) error { return nil })
		check(t, p.run(ctx))
		if n := p.Stats().Messages; n != 1 {
			t.Errorf("%d messages were replayed", n)
		}
	})
}

// TestReceiverFails ends the replay with the error of the receiver.
func TestReceiverFails(t *testing.T) {
	t.Parallel()
	f, want := open(t, write(t, message(0, 1, 0)), recording.Selection{}), errors.New("full")
	p := newPlayer(f, Pace{}, func([]recording.Message) error { return want })
	if err := p.run(t.Context()); !errors.Is(err, want) {
		t.Errorf("ends with %v", err)
	}
}

// TestOrder merges the shards by time, if time matters.
func TestOrder(t *testing.T) {
	t.Parallel()
	path := write(t, message(0, 1, 0), message(0, 2, 4), message(0, 3, 9), message(2, 7, 1), message(2, 8, 5),
		message(1, 5, 4), message(1, 6, 4))
	f := open(t, path, recording.Selection{})
	for speed, want := range map[float64][]byte{0: {1, 2, 3, 7, 8, 5, 6}, 1: {1, 7, 2, 5, 6, 8, 3}} {
		got := play(t, f, Pace{Speed: speed})
		if !bytes.Equal(got, want) {
			t.Errorf("speed %g: %v, want %v", speed, got, want)
		}
	}
	selected := open(t, path, recording.Selection{Host: "h2"})
	if got := play(t, selected, Pace{Speed: 1}); !bytes.Equal(got, []byte{7, 8}) {
		t.Errorf("host h2 has %v", got)
	}
}

// play returns the data of all messages.
func play(t *testing.T, f *File, pace Pace) (all []byte) {
	t.Helper()
	p := newPlayer(f, pace, func(list []recording.Message) error {
		for _, m := range list {
			all = append(all, m.Data...)
		}
		return nil
	})
	check(t, p.run(t.Context()))
	return all
}

// TestDamage reads around a damaged block, at each speed, and reports it once.
func TestDamage(t *testing.T) {
	t.Parallel()
	path := write(t, message(0, 1, 0), message(1, 2, 1), message(0, 3, 2))
	in, err := recording.Open(path)
	check(t, err)
	var offsets []int64
	for b, err := range in.Summaries() {
		check(t, err)
		offsets = append(offsets, b.Offset)
	}
	check(t, in.Close())
	data, err := os.ReadFile(path)
	check(t, err)
	data[offsets[2]+20] ^= 1 // in the second block of messages
	check(t, os.WriteFile(path, data, 0o600))
	f := open(t, path, recording.Selection{})
	for range 2 {
		for _, speed := range []float64{0, 1} {
			if got := play(t, f, Pace{Speed: speed}); !bytes.Equal(got, []byte{1, 3}) {
				t.Errorf("speed %g: %v", speed, got)
			}
		}
	}
	if f.Damages() != 1 {
		t.Errorf("%d damages", f.Damages())
	}
}

// TestGroups gives large and many messages in groups, unchanged.
func TestGroups(t *testing.T) {
	t.Parallel()
	var messages []recording.Message
	for i := range 1000 {
		m := message(0, uint64(i+1), time.Duration(i))
		m.Data = bytes.Repeat([]byte{byte(i)}, 1+i*7)
		messages = append(messages, m)
	}
	f := open(t, write(t, messages...), recording.Selection{})
	next, most := 0, 0
	p := newPlayer(f, Pace{}, func(list []recording.Message) error {
		most = max(most, len(list))
		for i := range list {
			if !bytes.Equal(list[i].Data, messages[next].Data) || list[i].Sequence != messages[next].Sequence {
				t.Fatalf("message %d differs", next)
			}
			next++
		}
		return nil
	})
	check(t, p.run(t.Context()))
	if next != len(messages) || most != mostMessages {
		t.Errorf("%d messages, at most %d at a time", next, most)
	}
}

// TestOrderOfMovedHosts: the messages of a host in the shard of an earlier generation come first, also if the file has
// them last, and if the clock of their server was fast.
func TestOrderOfMovedHosts(t *testing.T) {
	t.Parallel()
	of := func(shard int, sequence uint64, data byte, after time.Duration) recording.Message {
		m := message(shard, sequence, after)
		m.Subject, m.Data = schema.Subject(shard, "c", "h", schema.KindCopy), []byte{data}
		return m
	}
	path := write(t, of(2, 1, 4, 7), of(2, 2, 5, 11), of(0, 1, 1, 0), message(1, 9, 9), of(0, 2, 2, 6), of(0, 3, 3, 8))
	for speed, want := range map[float64][]byte{0: {1, 9, 2, 3, 4, 5}, 1: {1, 2, 3, 9, 4, 5}} {
		if got := play(t, open(t, path, recording.Selection{}), Pace{Speed: speed}); !bytes.Equal(got, want) {
			t.Errorf("speed %g: %v, want %v", speed, got, want)
		}
	}
}

// TestReplayOfMovedHosts: the folds have the same figures as if the number of shards had not changed.
func TestReplayOfMovedHosts(t *testing.T) {
	t.Parallel()
	all := batches(1, time.Hour, 10)
	file := func(shards func(i int) int) string {
		var early, late []recording.Message
		sequences := map[int]uint64{}
		for i, m := range all {
			m.Shard = shards(i)
			sequences[m.Shard]++
			m.Sequence, m.Subject = sequences[m.Shard], schema.Subject(m.Shard, "c", "h", schema.KindSync)
			if m.Shard == 0 {
				early = append(early, m)
			} else {
				late = append(late, m)
			}
		}
		return write(t, append(late, early...)...)
	}
	want := replayed(t, file(func(int) int { return 0 }), Pace{}, recording.Selection{}).Snapshot()
	for _, speed := range []float64{0, 1e6} {
		l := replayed(t, file(func(i int) int { return i / 4 }), Pace{Speed: speed}, recording.Selection{})
		got := l.Snapshot()
		if lost := l.Lost(); len(lost) > 0 || len(got.Processes) != 1 {
			t.Fatalf("speed %g: lost %v, %d processes", speed, lost, len(got.Processes))
		}
		if g, w := got.Processes[0], want.Processes[0]; g.Waits != w.Waits || g.Evidence != w.Evidence {
			t.Errorf("speed %g: got\n%+v %s\nwant\n%+v %s", speed, g.Waits, g.Evidence, w.Waits, w.Evidence)
		}
	}
}

package replay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// batches returns the messages of a run of host h, for shard 0. Each boot is a day.
func batches(boot byte, began time.Duration, count int) (all []recording.Message) {
	for seq := range count {
		b := schema.NewBuilder(schema.KindSync)
		call := b.Call(schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync})
		thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 1, Comm: "x"}), TID: 1})
		b.AddSync(&schema.Sync{Time: schema.KTime(began) + schema.KTime(seq), Thread: thread, Call: call,
			CUDAStream: b.CUDAStream(0)})
		booted := start.Add(time.Duration(boot) * 24 * time.Hour)
		all = append(all, recording.Message{Stored: booted.Add(began).Add(time.Duration(seq)),
			Sequence: uint64(seq + 1), Subject: schema.Subject(0, "c", "h", schema.KindSync),
			Data: b.Encode(&schema.Header{Cluster: "c", Host: "h", BootID: string(boot), Run: uint64(began),
				Seq: uint64(seq + 1), ClockOffset: booted.UnixNano()})})
	}
	return all
}

// TestPublisherFindsRunsThatAreNotTheNewest publishes runs of one host, and then replays a recording of one of them.
func TestPublisherFindsRunsThatAreNotTheNewest(t *testing.T) {
	t.Parallel()
	runs := [][]recording.Message{
		batches('a', time.Hour, 5), batches('a', 2*time.Hour, 70), batches('a', 3*time.Hour, 1),
		batches('b', time.Hour, 90), batches('b', time.Hour+time.Millisecond, 300), batches('c', time.Minute, 2),
	}
	for _, tt := range []struct {
		name    string
		stored  []int // runs on the bus, in order
		replays int   // run of the recording
		refused bool
	}{
		{"the only run", []int{0}, 0, true},
		{"the newest of two", []int{0, 1}, 1, true},
		{"the older of two", []int{0, 1}, 0, true},
		{"one of the same boot, in the middle", []int{0, 1, 2, 3, 4, 5}, 1, true},
		{"one message, in the middle", []int{0, 1, 2, 3, 4, 5}, 2, true},
		{"one of another boot, in the middle", []int{0, 1, 2, 3, 4, 5}, 3, true},
		{"one behind a run that began just before", []int{0, 1, 2, 3, 4, 5}, 4, true},
		{"the first, published late", []int{5, 0, 1}, 5, true},
		{"later runs of the host", []int{2, 3, 4, 5}, 1, false},
		{"earlier runs of the host", []int{0, 1, 2}, 3, false},
		{"runs before and behind", []int{0, 1, 3, 4, 5}, 2, false},
		{"a run of the same boot is missing", []int{0, 1, 2, 4, 5}, 3, false},
		{"no run of the host", nil, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := startLive(t, 1)
			for _, i := range tt.stored {
				for _, m := range runs[i] {
					_, err := to.js.Publish(t.Context(), m.Subject, m.Data)
					check(t, err)
					other := strings.Replace(m.Subject, ".h.", ".other.", 1) // whose messages lie between
					_, err = to.js.Publish(t.Context(), other, []byte("no batch"))
					check(t, err)
				}
			}
			before := to.last(0)
			p, err := publish(t, write(t, slices.Clone(runs[tt.replays])...), to.js)
			if !tt.refused {
				check(t, err)
				if n := p.Published().Acked; n != uint64(len(runs[tt.replays])) {
					t.Errorf("%d messages are acked, want %d", n, len(runs[tt.replays]))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "gputap stream rm") {
				t.Errorf("ends with %v", err)
			}
			if last := to.last(0); last != before {
				t.Errorf("%d messages are published", last-before)
			}
		})
	}
}

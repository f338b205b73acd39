package record

import (
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestStateAfterTheShardsChanged: the state has what its hosts published to earlier shards.
func TestStateAfterTheShardsChanged(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before, after bool // leak runs before the first change, after the last one
		begin         int  // message with which the recording begins; 0: the next one
		removed       bool // generations 1 and 2, and all checkpoints
	}{
		"a checkpoint of the new shards":          {before: true, after: true},
		"the checkpoint is too new":               {before: true, after: true, begin: 140},
		"leak has not run since the first change": {before: true},
		"leak has never run":                      {},
		"leak ran too late":                       {after: true, begin: 140},
		"the earlier generations were removed":    {before: true, after: true, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, bustest.Connect(t), 2)
			f.publish(100)
			if row.before {
				f.foldAll()
			}
			f.shard(5)
			f.publish(20)
			f.shard(3)
			f.publish(60)
			if row.after {
				f.foldAll()
			}
			o, live, logged := f.options(tempPath(t)), f.live(180), ""
			o.Log = slog.New(onMessage{slog.DiscardHandler, func(line slog.Record) { logged += line.Message + "\n" }})
			if row.begin > 0 {
				o.Since, live = f.published[row.begin].Stored, f.live(row.begin)
			}
			if row.removed {
				f.removeEarlier()
			}
			s := f.recordAll(o)
			got := readFile(t, o.Path)
			for _, stream := range got.streams {
				whole := !row.removed && stream.Since.IsZero() || row.removed && stream.Since.Equal(stream.Created)
				if (stream.State == recording.KnowledgeComplete) == row.removed || !whole {
					t.Errorf("shard %d: the state is %s since %s", stream.Shard, stream.State, stream.Since)
				}
			}
			if !row.removed {
				expectLive(t, "at the beginning", f.liveNow(got), live)
			}
			if len(got.streams) != f.topology.Shards { // else the hosts of closed shards would count twice
				t.Errorf("%d shards are recorded, want the %d of the newest generation", len(got.streams),
					f.topology.Shards)
			}
			if strings.Contains(logged, "and generation 2, which had the events from before, was removed") !=
				row.removed || strings.Contains(logged, removedMessages) || (s.Incomplete > 0) != row.removed {
				t.Errorf("%d shards are incomplete, and the log is\n%s", s.Incomplete, logged)
			}
		})
	}
}

// liveNow returns the live bytes at the beginning of a file in the shards of the newest generation.
func (f *fleet) liveNow(got file) map[string]int64 {
	live := map[string]int64{}
	for _, number := range f.topology.Numbers() {
		maps.Copy(live, got.liveIn[number])
	}
	return live
}

// removeEarlier removes the closed generations, and then all checkpoints.
func (f *fleet) removeEarlier() {
	f.t.Helper()
	for _, g := range f.topology.Previous {
		_, err := shard.RemoveGeneration(f.t.Context(), f.js, g.Generation)
		check(f.t, err)
	}
	states, err := f.js.Stream(f.t.Context(), schema.StateStream)
	check(f.t, err)
	check(f.t, states.Purge(f.t.Context()))
}

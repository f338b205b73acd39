package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

const jobSubject = "gputap.v1.ev.%d.sim0.slurm:1000_0.rank"

func summaryMessage(seq, run uint64, launches uint64) []byte {
	b := schema.NewBuilder(schema.KindRank)
	b.Origin = nameOfHost(0)
	process := b.Process(schema.Process{PID: 1, Job: nameOfJob(0), Rank: 1, Ranks: 8})
	thread := b.Thread(schema.Thread{Process: process})
	b.AddRank(&schema.Rank{Time: 1, Thread: thread, To: schema.Launching, Count: launches})
	return b.Encode(&schema.Header{Cluster: clusterOf(0), Host: nameOfJob(0), BootID: "b", Run: run, Seq: seq})
}

// TestSummariesComeAtLeastOnce: a summary may be stored again, and late, but not with other bytes or elsewhere.
func TestSummariesComeAtLeastOnce(t *testing.T) {
	shard := schema.Shard(clusterOf(0), nameOfJob(0), shards)
	type message struct{ seq, run, launches uint64 }
	for _, row := range []struct {
		name          string
		messages      []message
		shard         int
		batches, lost uint64
		again         uint64
		fault         string
	}{
		{"in order", []message{{1, 1, 5}, {2, 1, 6}}, shard, 2, 0, 0, ""},
		{"after a takeover", []message{{1, 1, 5}, {2, 1, 6}, {1, 1, 5}, {2, 1, 6}, {3, 1, 7}}, shard, 3, 0, 2, ""},
		{"a new run", []message{{1, 1, 5}, {1, 9, 6}}, shard, 2, 0, 0, ""},
		{"one is absent", []message{{1, 1, 5}, {4, 1, 6}}, shard, 2, 2, 0, ""},
		{"one comes too late", []message{{2, 1, 5}, {1, 1, 6}}, shard, 1, 1, 1, ""},
		{"other bytes", []message{{1, 1, 5}, {1, 1, 6}}, shard, 1, 0, 0, "with different bytes"},
		{"another shard", []message{{1, 1, 5}}, shard + 1, 0, 0, 0, "is under the subject"},
	} {
		s := newSummaries()
		var err error
		for _, m := range row.messages {
			data := summaryMessage(m.seq, m.run, m.launches)
			var b schema.Batch
			if err := schema.NewDecoder().Decode(data, &b); err != nil {
				t.Fatal(err)
			}
			if err = s.add(row.shard, fmt.Sprintf(jobSubject, row.shard), data, &b); err != nil {
				break
			}
		}
		if (err == nil) != (row.fault == "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%s: %v, want %q", row.name, err, row.fault)
		}
		c := s.counts[row.shard]
		if c.batches != row.batches || c.missing != row.lost || s.again[row.shard] != row.again {
			t.Errorf("%s: %+v, %d again; want %d batches, %d missing, %d again", row.name, c, s.again[row.shard],
				row.batches, row.lost, row.again)
		}
	}
}

// TestSummariesAreThoseOfUndisturbedReaders: each rank has one, and no other host.
func TestSummariesAreThoseOfUndisturbedReaders(t *testing.T) {
	whole := func() (*summaries, map[summary]uint64) {
		s, want := newSummaries(), map[summary]uint64{}
		for simulator := range simulators {
			for i := range jobs * ranksOfJob {
				of := jobHost{clusterOf(simulator), nameOfJob(i / ranksOfJob), nameOfHost(i)}
				one := summary{summaryRun{of, "b", 1}, 1}
				s.sums[one], want[one] = 7, 7
			}
		}
		return s, want
	}
	first := summary{summaryRun{jobHost{"sim0", "slurm:1000.0", "sim-0000"}, "b", 1}, 1}
	other := first
	other.host = "sim-0017"
	second := first
	second.seq = 2
	for _, row := range []struct {
		name   string
		change func(s *summaries, want map[summary]uint64)
		absent int
		fault  string
	}{
		{"equal", func(*summaries, map[summary]uint64) {}, 0, ""},
		{"one is not stored", func(_ *summaries, want map[summary]uint64) { want[second] = 8 }, 1, ""},
		{"other bytes", func(_ *summaries, want map[summary]uint64) { want[first] = 8 }, 0, "another or none"},
		{"one too many", func(s *summaries, _ map[summary]uint64) { s.sums[second] = 8 }, 0, "another or none"},
		{"a rank has none", func(s *summaries, want map[summary]uint64) {
			delete(s.sums, first)
			delete(want, first)
		}, 0, "no summary of sim0/sim-0000 in job slurm:1000.0"},
		{"a host without rank", func(s *summaries, want map[summary]uint64) { s.sums[other], want[other] = 7, 7 }, 0,
			"sim0/sim-0017 in job slurm:1000.0 is stored, which has no rank"},
	} {
		s, want := whole()
		row.change(s, want)
		absent, err := s.compare(want)
		if absent != row.absent || (err == nil) != (row.fault == "") ||
			err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%s: %d absent, %v; want %d, %q", row.name, absent, err, row.absent, row.fault)
		}
	}
}

// TestStoredAlertsAreThoseOfUndisturbedReaders: each fires once and clears once, and is about the right process.
func TestStoredAlertsAreThoseOfUndisturbedReaders(t *testing.T) {
	const slow = `{"id":"a","state":"firing","rule":"straggler",` +
		`"cluster":"sim1","host":"sim-0003","job":"slurm:1000.0"}`
	cleared := strings.Replace(slow, "firing", "cleared", 1)
	const leaks = `{"id":"b","state":"firing","rule":"leak_growth",` +
		`"cluster":"sim0","host":"sim-0005","job":"slurm:1000.0"}`
	otherRank := strings.Replace(slow, "sim-0003", "sim-0004", 1)
	otherTime := strings.Replace(slow, "{", `{"time":1,`, 1)
	otherJob := strings.Replace(slow, "1000", "1001", 1)
	otherCluster := strings.Replace(leaks, "sim0", "sim1", 1)
	for _, row := range []struct {
		name         string
		want, stored []string
		fault        string
	}{
		{"both", []string{slow, cleared, leaks}, []string{slow, leaks, cleared}, ""},
		{"one is not stored", []string{slow, cleared}, []string{slow}, ""},
		{"twice", []string{slow}, []string{slow, slow}, "is stored twice"},
		{"not raised", []string{slow}, []string{leaks}, "an undisturbed reader raises"},
		{"of another time", []string{slow}, []string{otherTime}, "undisturbed reader"},
		{"another rank", []string{otherRank}, []string{otherRank}, "about another process"},
		{"another job", []string{otherJob}, []string{otherJob}, "about another process"},
		{"another cluster", []string{otherCluster}, []string{otherCluster}, "about another process"},
		{"the wall clock's", nil, []string{`{"id":"c","state":"firing","rule":"host_silent"}`}, ""},
	} {
		want := map[change]string{}
		for _, text := range row.want {
			id, state := text[7:8], "firing"
			if strings.Contains(text, "cleared") {
				state = "cleared"
			}
			want[change{id, state}] = text
		}
		stored := storedAlerts{map[change]bool{}, map[string]int{}}
		var err error
		for _, text := range row.stored {
			if err = stored.add([]byte(text), want); err != nil {
				break
			}
		}
		if (err == nil) != (row.fault == "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%s: %v, want %q", row.name, err, row.fault)
		}
	}
}

// TestEntriesPublish: the folds of undisturbed readers have the options of the programs, and what they publish is kept.
func TestEntriesPublish(t *testing.T) {
	out := newOutputs()
	all := entriesTo(out)
	for i, name := range fold.Names() {
		if all[i].Name() != name || all[i].New() == nil {
			t.Errorf("entry %d is %s, want %s", i, all[i].Name(), name)
		}
	}
	data := summaryMessage(3, 1, 5)
	out.summarize(rank.Summary{Message: data})
	var b schema.Batch
	if err := schema.NewDecoder().Decode(data, &b); err != nil || len(out.summaries) != 1 {
		t.Fatal(err, out.summaries)
	}
	if _, kept := out.summaries[summaryOf(&b)]; !kept {
		t.Error("the summary is kept under another name")
	}
}

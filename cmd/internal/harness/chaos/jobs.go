package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/gputap/gputap/schema"
)

// Jobs of each simulator. Each has ranksOfJob ranks, each on one of the first hosts. Rank slowRank of the first job is
// slow, and the first simulator's rank leakingRank of it leaks.
const (
	jobs        = 2
	ranksOfJob  = 8
	slowRank    = 3
	leakingRank = 5
)

// nameOfJob is that of a simulator's job.
func nameOfJob(job int) string { return fmt.Sprintf("slurm:%d.0", 1000+job) }

// nameOfHost is that of a simulator's host.
func nameOfHost(i int) string { return fmt.Sprintf("sim-%04d", i) }

// jobHost is a host with a rank of a job.
type jobHost struct{ cluster, job, host string }

// summaryRun is the scope of the seq of summaries.
type summaryRun struct {
	jobHost
	boot string
	run  uint64
}

func (r summaryRun) String() string { return fmt.Sprintf("%s of %s/%s", r.job, r.cluster, r.host) }

type summary struct {
	summaryRun
	seq uint64
}

func summaryOf(b *schema.Batch) summary {
	return summary{summaryRun{jobHost{b.Cluster, b.Host, b.Origin}, b.BootID, b.Run}, b.Seq}
}

// summaries are the batches of kind rank in the streams. gputap-anomaly stores each at least once. After a takeover it
// stores some again, with the same seq and the same bytes.
type summaries struct {
	sums   map[summary]uint64 // hashes
	last   map[summaryRun]uint64
	counts [shards]counts // of a reader
	again  [shards]uint64
}

func newSummaries() *summaries {
	return &summaries{sums: map[summary]uint64{}, last: map[summaryRun]uint64{}}
}

// add adds a stored summary.
func (s *summaries) add(shard int, subject string, data []byte, b *schema.Batch) error {
	one, sum := summaryOf(b), maphash.Bytes(seed, data)
	own := fmt.Sprintf("gputap.v1.ev.%d.%s.%s.rank", shard, b.Cluster, strings.ReplaceAll(b.Host, ".", "_"))
	if subject != own || schema.Shard(b.Cluster, b.Host, shards) != shard {
		return fmt.Errorf("summary %d of %s is under the subject %s, want %s", b.Seq, one, subject, own)
	}
	if before, again := s.sums[one]; again && before != sum {
		return fmt.Errorf("summary %d of %s is stored twice, with different bytes", b.Seq, one)
	}
	s.sums[one] = sum
	last, c := s.last[one.summaryRun], &s.counts[shard]
	if b.Seq <= last {
		s.again[shard]++
		return nil
	}
	s.last[one.summaryRun] = b.Seq
	c.batches++
	c.missing += b.Seq - last - 1
	c.events[schema.KindRank] += uint64(b.Events)
	return nil
}

// compare compares the stored summaries with those of undisturbed readers. A summary may be absent if NATS could not be
// reached for too long. It returns how many are absent.
func (s *summaries) compare(want map[summary]uint64) (absent int, err error) {
	var faults []error
	seen := map[jobHost]bool{}
	for one, sum := range s.sums {
		seen[one.jobHost] = true
		if expected, known := want[one]; !known || expected != sum {
			faults = append(faults, fmt.Errorf("summary %d of %s is stored, but an undisturbed reader "+
				"publishes another or none", one.seq, one))
		}
	}
	for one := range want {
		if _, stored := s.sums[one]; !stored {
			absent++
		}
	}
	for simulator := range simulators {
		for i := range jobs * ranksOfJob {
			of := jobHost{clusterOf(simulator), nameOfJob(i / ranksOfJob), nameOfHost(i)}
			if !seen[of] {
				faults = append(faults, fmt.Errorf("no summary of %s/%s in job %s is stored", of.cluster, of.host,
					of.job))
			}
			delete(seen, of)
		}
	}
	for of := range seen {
		faults = append(faults, fmt.Errorf("a summary of %s/%s in job %s is stored, which has no rank of it",
			of.cluster, of.host, of.job))
	}
	return absent, firstOf(faults)
}

// verifySummaries compares the stored summaries with those of undisturbed readers.
func (f *fleet) verifySummaries(s *summaries, want *outputs) error {
	again := uint64(0)
	for _, n := range s.again {
		again += n
	}
	absent, err := s.compare(want.summaries)
	f.Say("%d of %d summaries of ranks are stored, as an undisturbed reader publishes them; %d repeated",
		len(want.summaries)-absent, len(want.summaries), again)
	if err == nil && len(s.sums) == 0 {
		err = errors.New("no summary of a rank is stored")
	}
	return errors.Join(err, errors.Join(want.faults...))
}

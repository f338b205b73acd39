package process

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// CheckInterval is how often to call Doubt and Vanished, in ns.
const CheckInterval = schema.KTime(5_000_000_000)

// Doubt takes the number of records about process life that were lost so far. If it grew, the end of any process that
// the table knows may be lost, now or already: Vanished checks those from then on.
func (t *Table) Doubt(lost uint64) {
	if lost != t.lost {
		t.lost, t.checks = lost, 2 // twice: some announcements are still in the ring
	}
	if t.checks == 0 {
		return
	}
	t.checks--
	for _, p := range t.byKey {
		p.doubted = true
	}
	for _, p := range t.byPID {
		p.doubted = true
	}
}

// Vanished returns doubted processes that were gone at this check and at the one before. Every ring was read between
// both, so no record of their end will come. It returns an end record for each.
func (t *Table) Vanished() (ends []bpf.ThreadRecord) {
	if !t.identity.listed {
		return nil // /proc lists another pid namespace
	}
	check := func(p *Process) {
		if !p.doubted || p.ended != 0 || procfs.Running(p.PID, p.Start) {
			return
		}
		if p.absent {
			ends = append(ends, t.endOf(p))
		}
		p.absent = true
	}
	for _, p := range t.byKey {
		check(p)
	}
	for _, p := range t.byPID {
		if p.Start == 0 {
			check(p)
		}
	}
	return ends
}

func (t *Table) endOf(p *Process) bpf.ThreadRecord {
	return bpf.ThreadRecord{
		Head: bpf.Head{
			Type: bpf.RecordEnd, Call: uint16(schema.CallExit), TID: p.PID, TGID: p.PID, ThreadStart: uint64(p.Start),
			Time: uint64(t.now),
		},
		ProcessStart: uint64(p.Start),
	}
}

const (
	// enoughThreads is the number of threads up to which nobody looks for ended ones.
	enoughThreads = 4096
	// maxThreadChecks bounds the time of one search: a check takes about 4 us.
	maxThreadChecks = 4096
)

// expireThreads removes threads that ended while their process runs: no record reports that.
func (t *Table) expireThreads() {
	t.rounds++
	if len(t.threads) <= enoughThreads || !t.identity.listed {
		return
	}
	checks := 0
	for key, thread := range t.threads {
		if thread.seen+1 >= t.rounds {
			continue // it made a call recently
		}
		if !procfs.ThreadExists(thread.Process.PID, thread.TID) {
			delete(t.threads, key)
		}
		if checks++; checks >= maxThreadChecks {
			return
		}
	}
}

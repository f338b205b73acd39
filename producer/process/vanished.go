package process

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// CheckInterval is how often to call Vanished, in ns.
const CheckInterval = schema.KTime(5_000_000_000)

// Vanished takes the number of records about process life that were lost so far. If it grew, the end of any process
// that the table knows may be lost, now or already: Vanished doubts those from then on. It returns an end record for
// each doubted process that was gone at this check and at the one before: every ring was read between both, so no
// record of its end will come.
func (t *Table) Vanished(lost uint64) (ends []bpf.ThreadRecord) {
	if lost != t.lost {
		t.lost, t.checks = lost, 2 // twice: some announcements are still in the ring
	}
	for p := range t.all() {
		p.doubted = p.doubted || t.checks > 0
		p.gap = p.gap || t.checks > 0
		// Without identity.listed, /proc lists another pid namespace.
		if !t.identity.listed || !p.doubted || p.ended != 0 || procfs.Running(p.PID, p.Start) {
			continue
		}
		if p.absent {
			ends = append(ends, bpf.ThreadRecord{
				Head: bpf.Head{
					Type: bpf.RecordEnd, Call: uint16(schema.CallExit), TID: p.PID, TGID: p.PID,
					ThreadStart: uint64(p.Start), Time: uint64(t.now),
				},
				ProcessStart: uint64(p.Start),
			})
		}
		p.absent = true
	}
	t.checks = max(t.checks-1, 0)
	return ends
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

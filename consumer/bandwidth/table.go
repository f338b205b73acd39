package bandwidth

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// maxCells limits the table of one batch to 6 MiB. A batch closes at 4,096 events of a few processes with a dozen
// calls; larger products are added event by event.
const maxCells = 1 << 18

// group is one call of one process on one GPU of a batch.
type group struct {
	entry *process.Entry[state]
	gpu   int // 0: unknown; otherwise 1 + index into Batch.GPUs
	call  int // index into Batch.Calls
}

// table sums the events of one batch by group. It needs six column reads and three additions per event and reuses its
// memory.
type table struct {
	entries []*process.Entry[state] // by index of process; nil for a process without threads

	threads, calls, gpus, results, bytes, durations []uint64

	base  []int // by thread: where the sums of its process begin
	cells []sum
}

// load expands the columns. entries are the entries of the batch's threads.
func (t *table) load(b *schema.Batch, entries []*process.Entry[state]) {
	t.threads = b.Thread().Values(t.threads, b.Events)
	t.calls = b.Call().Values(t.calls, b.Events)
	t.gpus = b.GPU().Values(t.gpus, b.Events)
	t.results = b.Result().Values(t.results, b.Events)
	t.bytes = b.Bytes().Values(t.bytes, b.Events)
	t.durations = b.Duration().Values(t.durations, b.Events)
	t.entries = append(t.entries[:0], make([]*process.Entry[state], len(b.Processes))...)
	for i, e := range entries {
		t.entries[b.Threads[i].Process] = e
	}
}

// each passes the sum of every group with events to add. If the table would be too large, it passes event by event.
// It counts failed calls.
func (t *table) each(b *schema.Batch, add func(group, sum)) {
	perProcess := (len(b.GPUs) + 1) * len(b.Calls)
	if perProcess > maxCells || perProcess*len(b.Processes) > maxCells {
		t.eachEvent(b, add)
		return
	}
	t.sum(b, perProcess)
	for i, s := range t.cells {
		if s.calls > 0 {
			at := i % perProcess
			add(group{t.entries[i/perProcess], at / len(b.Calls), at % len(b.Calls)}, s)
		}
	}
}

func (t *table) sum(b *schema.Batch, perProcess int) {
	n := perProcess * len(b.Processes)
	if cap(t.cells) < n {
		t.cells = make([]sum, n)
	}
	t.cells = t.cells[:n]
	clear(t.cells)
	t.base = t.base[:0]
	for i := range b.Threads {
		t.base = append(t.base, int(b.Threads[i].Process)*perProcess)
	}
	calls, gpus, results, bytes, durations := t.calls, t.gpus, t.results, t.bytes, t.durations
	for i, thread := range t.threads {
		if results[i] != 0 {
			t.fail(b, i)
			continue
		}
		cell := &t.cells[t.base[thread]+int(gpus[i])*len(b.Calls)+int(calls[i])]
		cell.calls++
		cell.bytes += bytes[i]
		cell.busy += durations[i]
	}
}

func (t *table) eachEvent(b *schema.Batch, add func(group, sum)) {
	for i, thread := range t.threads {
		if t.results[i] != 0 {
			t.fail(b, i)
			continue
		}
		e := t.entries[b.Threads[thread].Process]
		add(group{e, int(t.gpus[i]), int(t.calls[i])}, sum{1, t.bytes[i], t.durations[i]})
	}
}

// fail counts event i as a failed call.
func (t *table) fail(b *schema.Batch, i int) {
	e := t.entries[b.Threads[t.threads[i]].Process]
	e.Calls.Find(&b.Calls[t.calls[i]]).Count(uint32(t.results[i]))
}

// release drops the entries, because the process table may forget them before the next batch.
func (t *table) release() { clear(t.entries) }

package consumertest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// Job makes the calls of the ranks of a job, and what their hosts publish.
type Job struct {
	Name    string
	Ranks   int
	PerHost int           // ranks of one host; 0: one
	Offset  time.Duration // of the start from the full minute
	Every   time.Duration // between two batches of a kind; 0: one second
	// Step adds the calls of one training step of all ranks.
	Step func(*Job)

	// Clock returns how wrong the wall clock of a host is; nil: they are right.
	Clock func(host int) time.Duration

	Random *rand.Rand
	Calls  [][]JobCall     // by rank, in order
	At     []time.Duration // when each rank goes on
}

// JobCall is one call of a rank. Times are since the start of the job.
type JobCall struct {
	Symbol   string
	At, Took time.Duration
	Bytes    uint64
}

// Calls of ranks.
const (
	JobLaunch = "cuLaunchKernel"
	JobHtoD   = "cuMemcpyHtoDAsync_v2"
	JobDtoH   = "cuMemcpyDtoHAsync_v2"
	JobWait   = "cuStreamSynchronize"
)

// Play makes calls until every rank has reached the time.
func (j *Job) Play(until time.Duration) {
	if j.At == nil {
		j.At, j.Calls = make([]time.Duration, j.Ranks), make([][]JobCall, j.Ranks)
	}
	for slices.Min(j.At) < until {
		j.Step(j)
	}
}

// Call adds a call of a rank at its time, which then is the return of the call.
func (j *Job) Call(rank int, symbol string, took time.Duration) {
	j.Calls[rank] = append(j.Calls[rank], JobCall{symbol, j.At[rank], took, 1 << 20})
	j.At[rank] += took
}

// Pause lets time pass for a rank.
func (j *Job) Pause(rank int, d time.Duration) { j.At[rank] += d }

// Noise returns a duration that varies by a share of it.
func (j *Job) Noise(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * max(0.1, 1+share*j.Random.NormFloat64()))
}

// Gloo is a training step whose gradients the CPU exchanges: launches, a copy to the host, a wait without any call for
// the slowest rank, and a copy back. The slow rank sleeps before it launches.
func Gloo(launches, slow int, sleep time.Duration) func(*Job) {
	return func(j *Job) {
		for rank := range j.Ranks {
			if rank == slow {
				j.Pause(rank, sleep)
			}
			for range launches {
				j.Call(rank, JobLaunch, 0)
				j.Pause(rank, j.Noise(30*time.Microsecond, 0.3))
			}
			j.Call(rank, JobWait, j.Noise(4*time.Millisecond, 0.1))
			j.Call(rank, JobDtoH, j.Noise(300*time.Microsecond, 0.1))
		}
		exchanged := slices.Max(j.At)
		for rank := range j.Ranks {
			j.At[rank] = exchanged + j.Noise(2*time.Millisecond, 0.1)
			j.Call(rank, JobHtoD, j.Noise(300*time.Microsecond, 0.1))
			j.Pause(rank, 200*time.Microsecond)
		}
	}
}

// NCCL is a training step whose gradients the GPUs exchange. Ranks wait for the slowest one in the queue of launches
// for the share queued of the time, and for the rest in a sync. The slow rank works longer before it launches.
func NCCL(launches, slow int, work, more time.Duration, queued float64) func(*Job) {
	return func(j *Job) {
		for rank := range j.Ranks {
			took := j.Noise(work, 0.03)
			if rank == slow {
				took += more
			}
			for range launches {
				j.Call(rank, JobLaunch, 0)
				j.Pause(rank, took/time.Duration(launches))
			}
		}
		end := slices.Max(j.At)
		for rank := range j.Ranks {
			j.Pause(rank, time.Duration(queued*float64(end-j.At[rank])))
			j.Call(rank, JobLaunch, 0)
			j.Pause(rank, 20*time.Microsecond)
			j.Call(rank, JobWait, end-j.At[rank]+j.Noise(work/10, 0.05))
		}
	}
}

// Wall is the start of all jobs without an Offset: a full minute.
var Wall = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// KTime converts a time of a host since the start of the job. Each host has another boot time.
func (j *Job) KTime(host int, at time.Duration) schema.KTime {
	return schema.KTime(Wall.Add(j.Offset+at).UnixNano() - offsetOf(host))
}

func offsetOf(host int) int64 { return 1_700_000_000_123_456_789 + int64(host)*1_234_567_891 }

// Process returns the process of a rank.
func (j *Job) Process(rank int) schema.Process {
	return schema.Process{PID: uint32(100 + rank), Start: 7, UID: 1000, User: "ada", Comm: "train", Job: j.Name,
		Rank: uint32(rank + 1), Ranks: uint32(j.Ranks)}
}

// Message is what a host publishes at a time since the start of the job.
type Message struct {
	At   time.Duration
	Data []byte
}

// Messages returns the batches and heartbeats of all hosts until a time, in the order in which NATS stores them. The
// batches of each kind come once a second or Every so often, and heartbeats every two seconds, of each host at another
// moment.
func (j *Job) Messages(tb testing.TB, until time.Duration) (all []Message) {
	j.Play(until)
	perHost := max(1, j.PerHost)
	for first := 0; first < j.Ranks; first += perHost {
		h := &jobHost{job: j, number: first / perHost, first: first, last: min(j.Ranks, first+perHost),
			calls: map[string]*schema.Call{}}
		all = append(all, h.messages(tb, until)...)
	}
	slices.SortStableFunc(all, func(a, b Message) int { return cmp.Compare(a.At, b.At) })
	return all
}

// jobHost publishes the calls of the ranks from first to last.
type jobHost struct {
	job         *Job
	number      int
	first, last int
	seq         [schema.NumKinds]uint64
	calls       map[string]*schema.Call
}

func (h *jobHost) messages(tb testing.TB, until time.Duration) (list []Message) {
	interval := cmp.Or(h.job.Every, time.Second)
	var next [64]int // call of each rank
	beat := 500*time.Millisecond + time.Duration(h.number)*1300*time.Millisecond%schema.RankWindow
	for at := interval; at <= until; at += interval {
		builders := map[schema.Kind]*jobBatch{}
		for rank := h.first; rank < h.last; rank++ {
			i := &next[rank-h.first]
			for calls := h.job.Calls[rank]; *i < len(calls) && calls[*i].At+calls[*i].Took < at; *i++ {
				h.add(tb, builders, rank, &calls[*i])
			}
		}
		for _, kind := range []schema.Kind{schema.KindSync, schema.KindCopy, schema.KindLaunch} {
			if b := builders[kind]; b != nil {
				list = append(list, Message{at, h.encode(b.Builder)})
			}
		}
		for ; beat < at; beat += schema.RankWindow {
			b := schema.NewBuilder(schema.KindHost)
			for _, kind := range []schema.Kind{schema.KindLaunch, schema.KindCopy, schema.KindSync} {
				if h.seq[kind] > 0 {
					b.Ends = append(b.Ends, schema.End{Kind: kind, Seq: h.seq[kind],
						Through: h.job.KTime(h.number, beat)})
				}
			}
			list = append(list, Message{at, h.encode(b)})
		}
	}
	return list
}

// jobBatch is an open batch, with the thread of the rank whose calls are added.
type jobBatch struct {
	*schema.Builder
	rank   int
	thread uint32
}

func (h *jobHost) add(tb testing.TB, builders map[schema.Kind]*jobBatch, rank int, call *JobCall) {
	c := h.calls[call.Symbol]
	if c == nil {
		c = callOf(tb, call.Symbol)
		h.calls[call.Symbol] = c
	}
	b := builders[c.Kind]
	if b == nil {
		b = &jobBatch{Builder: schema.NewBuilder(c.Kind), rank: -1}
		builders[c.Kind] = b
	}
	if b.rank != rank {
		p := h.job.Process(rank)
		b.rank, b.thread = rank, b.Thread(schema.Thread{Process: b.Process(p), TID: p.PID, Comm: p.Comm})
	}
	thread, ref, at := b.thread, b.Call(c.Ref()), h.job.KTime(h.number, call.At)
	switch c.Kind {
	case schema.KindLaunch:
		b.AddLaunch(&schema.Launch{Time: at, Thread: thread, Shape: b.Shape(schema.LaunchShape{Call: ref,
			Func: b.Func(schema.Func{Name: "k"})}), CUDAStream: b.CUDAStream(0)})
	case schema.KindCopy:
		b.AddCopy(&schema.Copy{Time: at, Duration: uint64(call.Took), Thread: thread, Call: ref, Bytes: call.Bytes,
			CUDAStream: b.CUDAStream(0)})
	case schema.KindSync:
		b.AddSync(&schema.Sync{Time: at, Duration: uint64(call.Took), Thread: thread, Call: ref,
			CUDAStream: b.CUDAStream(0)})
	}
}

func callOf(tb testing.TB, symbol string) *schema.Call {
	i := slices.IndexFunc(schema.Calls, func(c schema.Call) bool { return c.Symbol == symbol })
	if i < 0 {
		tb.Fatalf("no call %q in the table", symbol)
	}
	return &schema.Calls[i]
}

func (h *jobHost) encode(b *schema.Builder) []byte {
	h.seq[b.Kind()]++
	offset := offsetOf(h.number)
	if h.job.Clock != nil {
		offset += int64(h.job.Clock(h.number))
	}
	return slices.Clone(b.Encode(&schema.Header{Cluster: "test", Host: fmt.Sprintf("%s-%d", h.job.Name, h.number),
		BootID: fmt.Sprint("boot-", h.number), Run: 1, Seq: h.seq[b.Kind()], ClockOffset: offset}))
}

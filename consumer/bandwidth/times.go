package bandwidth

import (
	"cmp"
	"math"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// sizeKey is the labels of the histograms of sizes and durations. It belongs to no host: a histogram has many series.
type sizeKey struct {
	comm  string
	row   schema.Direction
	async bool
}

// Owner returns no host.
func (sizeKey) Owner() snapshot.HostID { return snapshot.HostID{} }

// Other returns the key of comm="other" with the same row and mode.
func (k sizeKey) Other() sizeKey { return sizeKey{process.Other, k.row, k.async} }

// Page returns the key, because metrics show it unchanged.
func (k sizeKey) Page() sizeKey { return k }

// Compare orders by comm, row and mode.
func (k sizeKey) Compare(to sizeKey) int {
	return cmp.Or(cmp.Compare(k.comm, to.comm), cmp.Compare(k.row, to.row), compareBool(k.async, to.async))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// sizes are the distributions of the copies of one comm, direction and mode.
type sizes struct {
	bytes   process.Powers
	seconds process.Powers // in the call; Sum is ns
}

// Add adds more.
func (s *sizes) Add(more *sizes) {
	s.bytes.Add(&more.bytes)
	s.seconds.Add(&more.seconds)
}

// Code passes over the distributions.
func (s *sizes) Code(c *snapshot.Codec) {
	s.bytes.Code(c)
	s.seconds.Code(c)
}

// rateKey is the labels of the histogram of throughput.
type rateKey struct {
	snapshot.HostID
	gpu, uuid string
	row       schema.Direction
}

// Owner returns the host of the GPU.
func (k rateKey) Owner() snapshot.HostID { return k.HostID }

// Other returns the key of everything above the limit of series. It belongs to no host.
func (k rateKey) Other() rateKey {
	return rateKey{HostID: snapshot.HostID{Host: process.Other}, row: k.row}
}

// Page returns the key as metrics show it.
func (k rateKey) Page() rateKey {
	k.Cluster, k.Host = process.Label(k.Cluster), process.Label(k.Host)
	return k
}

// Compare orders by host, GPU and row.
func (k rateKey) Compare(to rateKey) int {
	return cmp.Or(k.HostID.Compare(to.HostID), cmp.Compare(k.gpu, to.gpu), cmp.Compare(k.uuid, to.uuid),
		cmp.Compare(k.row, to.row))
}

// times sums the durations of a batch by process and call, and throughput by GPU and call.
type times struct {
	calls int
	base  []int // by thread

	entries []*process.Entry[state] // by process

	timed []bool
	rated []bool // by call
	spent [][timePowers]tick
	rates [][ratePowers]tick
}

// tick is a number of values and their sum.
type tick struct{ n, sum uint64 }

const (
	timePowers = 48
	lowestTime = -30 // about 1 ns
	ratePowers = 32
	lowestRate = 14 // 16 KiB/s
	leastRated = 64 << 10
)

func (t *times) load(b *schema.Batch, entries []*process.Entry[state]) {
	t.calls = len(b.Calls)
	t.timed, t.rated = t.timed[:0], t.rated[:0]
	for i := range b.Calls {
		_, is := submitted(b.Calls[i].Op)
		t.timed = append(t.timed, is && rowOf(&b.Calls[i]) != rowSet)
		t.rated = append(t.rated, b.Calls[i].Op == schema.OpCopy)
	}
	t.base = t.base[:0]
	t.entries = append(t.entries[:0], make([]*process.Entry[state], len(b.Processes))...)
	for i := range b.Threads {
		t.entries[b.Threads[i].Process] = entries[i]
		t.base = append(t.base, int(b.Threads[i].Process)*t.calls)
	}
	t.spent = append(t.spent[:0], make([][timePowers]tick, len(b.Processes)*t.calls)...)
	t.rates = append(t.rates[:0], make([][ratePowers]tick, (len(b.GPUs)+1)*t.calls)...)
}

func (t *times) observe(thread uint64, gpu, call int, bytes, ns uint64) {
	at := &t.spent[t.base[thread]+call][timePlace(ns)]
	at.n++
	at.sum += ns
	if bytes >= leastRated && t.rated[call] && ns > 0 {
		rate := rateOf(bytes, ns)
		at = &t.rates[gpu*t.calls+call][ratePlace(rate)]
		at.n++
		at.sum += uint64(rate)
	}
}

func timePlace(ns uint64) int { return min(process.SecondsPower(ns)-lowestTime, timePowers-1) }

func rateOf(bytes, ns uint64) float64 { return float64(bytes) * 1e9 / float64(ns) }

// ratePlace returns the place of a rate among the powers of two.
func ratePlace(rate float64) int {
	bits := math.Float64bits(rate)
	power := int(bits>>52) - 1023
	if bits<<12 != 0 {
		power++
	}
	return min(max(power-lowestRate, 0), ratePowers-1)
}

// addTimes adds the sums of a batch to the series.
func (m *Meter) addTimes(b *schema.Batch) {
	t := &m.times
	for i := range t.spent {
		call := &b.Calls[i%t.calls]
		if !t.timed[i%t.calls] {
			continue
		}
		var to *process.Powers
		for place, one := range t.spent[i] {
			if one.n == 0 {
				continue
			}
			if to == nil {
				to = m.secondsOf(t.entries[i/t.calls].Comm, call)
			}
			to.ObserveAll(lowestTime+place, one.n, one.sum)
		}
	}
	for i := range t.rates {
		if !t.rated[i%t.calls] {
			continue
		}
		var to *process.Powers
		for place, one := range t.rates[i] {
			if one.n == 0 {
				continue
			}
			if to == nil {
				to = m.ratesOf(b, i/t.calls, rowOf(&b.Calls[i%t.calls]))
			}
			to.ObserveAll(lowestRate+place, one.n, one.sum)
		}
	}
}

// addTime adds the duration and throughput of one event.
func (m *Meter) addTime(b *schema.Batch, comm string, gpu, call int, bytes, ns uint64) {
	of := &b.Calls[call]
	if _, is := submitted(of.Op); !is || rowOf(of) == rowSet {
		return
	}
	m.secondsOf(comm, of).ObserveAll(lowestTime+timePlace(ns), 1, ns)
	if bytes >= leastRated && of.Op == schema.OpCopy && ns > 0 {
		rate := rateOf(bytes, ns)
		m.ratesOf(b, gpu, rowOf(of)).ObserveAll(lowestRate+ratePlace(rate), 1, uint64(rate))
	}
}

func (m *Meter) secondsOf(comm string, call *schema.CallRef) *process.Powers {
	async, _ := submitted(call.Op)
	return &m.sizes.At(sizeKey{process.Label(comm), rowOf(call), async}).seconds
}

func (m *Meter) ratesOf(b *schema.Batch, gpu int, row schema.Direction) *process.Powers {
	w := process.NewWorkload(b, &process.Info{}, gpu)
	return m.rates.At(rateKey{w.HostID, w.GPU, w.UUID, row})
}

// Upper bounds of the classic buckets are 2 to the power of these.
var (
	bytePowers   = []int{8, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32}
	secondPowers = []int{-20, -18, -16, -14, -12, -10, -8, -6, -4, -2, 0, 2}
	speedPowers  = []int{26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 39}
)

var (
	copySizes   = metric.Desc("gputap_cuda_memcpy_size_bytes")
	callSeconds = metric.Desc("gputap_cuda_memcpy_call_seconds")
	throughput  = metric.Desc("gputap_cuda_memcpy_throughput_bytes_per_second")
)

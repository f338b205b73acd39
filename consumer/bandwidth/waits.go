package bandwidth

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Waits counts calls that wait for the GPU.
type Waits struct {
	Calls uint64 // successful waits for contexts, CUDA streams and CUDA events
	NS    uint64 // host time in them, ns
}

var (
	waitLabels = []string{"hostname", "gpu", "UUID", "container", "comm"}

	waitSeconds = prometheus.NewDesc("gputap_cuda_sync_seconds_total",
		"Host time in successful calls that wait for the GPU, summed over threads.", waitLabels, nil)
	waitCalls = prometheus.NewDesc("gputap_cuda_sync_calls_total", "Successful calls that wait for the GPU.",
		waitLabels, nil)
)

// applySync adds one batch of waits.
func (m *Meter) applySync(b *schema.Batch) {
	threads := m.processes.Threads(b)
	for i := range b.Events {
		e := b.Sync(i)
		p, call := threads[e.Thread], &b.Calls[e.Call]
		p.Calls.Find(call).Count(e.Result)
		if call.Op != schema.OpSync || e.Result != 0 {
			continue
		}
		l := seriesOf(b, p)
		if e.GPU > 0 {
			l.gpu, l.uuid = strconv.Itoa(int(b.GPUs[e.GPU-1].Ordinal)), process.Label(b.GPUs[e.GPU-1].UUID)
		}
		one := Waits{1, e.Duration}
		p.State.waits.add(one)
		m.waitsOf(l).add(one)
	}
}

func (w *Waits) add(more Waits) {
	w.Calls += more.Calls
	w.NS += more.NS
}

// waitsOf returns the waits of a series, always the same ones.
func (m *Meter) waitsOf(k series) *Waits {
	if w := m.waits[k]; w != nil {
		return w
	}
	if len(m.waits) >= maxSeries-1 {
		if m.otherWaits == nil {
			m.otherWaits = &Waits{}
		}
		return m.otherWaits
	}
	w := &Waits{}
	m.waits[k] = w
	return w
}

func (m *Meter) collectWaits(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	waits := make(map[labels]Waits, len(m.waits))
	add := func(l labels, more *Waits) {
		of := waits[l]
		of.add(*more)
		waits[l] = of
	}
	for k, w := range m.waits {
		add(k.labels, w)
	}
	if m.otherWaits != nil {
		add(labels{comm: "other"}, m.otherWaits)
	}
	m.mu.Unlock()
	for l, w := range waits {
		who := []string{l.hostname, l.gpu, l.uuid, l.container, l.comm}
		ch <- total(waitSeconds, float64(w.NS)/1e9, who)
		ch <- total(waitCalls, float64(w.Calls), who)
	}
}

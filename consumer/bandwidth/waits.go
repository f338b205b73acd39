package bandwidth

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Waits is what a process's threads waited for the GPU.
type Waits struct {
	Calls uint64 // waits that succeeded: of contexts, CUDA streams and CUDA events
	NS    uint64 // host time in them
}

var (
	waitLabels = []string{"hostname", "gpu", "UUID", "container", "comm"}

	waitSeconds = prometheus.NewDesc("gputap_cuda_sync_seconds_total",
		"Host time in calls that wait for the GPU and succeeded, summed over threads.", waitLabels, nil)
	waitCalls = prometheus.NewDesc("gputap_cuda_sync_calls_total", "Calls that wait for the GPU and succeeded.", waitLabels, nil)
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
		l := labels{hostname: process.Label(b.Host), container: process.Label(p.Container), comm: process.Label(p.Comm)}
		if e.GPU > 0 {
			l.gpu, l.uuid = strconv.Itoa(int(b.GPUs[e.GPU-1].Ordinal)), process.Label(b.GPUs[e.GPU-1].UUID)
		}
		p.State.waits.add(e.Duration)
		m.waitsOf(l).add(e.Duration)
	}
}

func (w *Waits) add(ns uint64) {
	w.Calls++
	w.NS += ns
}

// waitsOf gives the waits of a label set, for ever the same.
func (m *Meter) waitsOf(l labels) *Waits {
	if w := m.waits[l]; w != nil {
		return w
	}
	if len(m.waits) >= maxSeries-1 {
		l = labels{comm: "other"}
	}
	w := m.waits[l]
	if w == nil {
		w = &Waits{}
		m.waits[l] = w
	}
	return w
}

func (m *Meter) collectWaits(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	waits := make(map[labels]Waits, len(m.waits))
	for l, w := range m.waits {
		waits[l] = *w
	}
	m.mu.Unlock()
	for l, w := range waits {
		who := []string{l.hostname, l.gpu, l.uuid, l.container, l.comm}
		ch <- total(waitSeconds, float64(w.NS)/1e9, who)
		ch <- total(waitCalls, float64(w.Calls), who)
	}
}

package anomaly

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector.
func (d *Detector) Describe(to chan<- *prometheus.Desc) { d.book.Describe(to) }

// Overflow reports, by family, how often a series was counted as other since the fold was made.
func (d *Detector) Overflow(see func(family string, times uint64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.Overflow(see)
}

// Collect implements prometheus.Collector.
func (d *Detector) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	send := d.book.Metrics()
	d.mu.Unlock()
	send(to)
}

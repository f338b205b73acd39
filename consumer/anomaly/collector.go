package anomaly

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector.
func (d *Detector) Describe(to chan<- *prometheus.Desc) { d.book.Describe(to) }

// Collect implements prometheus.Collector.
func (d *Detector) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	send := d.book.Metrics()
	d.mu.Unlock()
	send(to)
}

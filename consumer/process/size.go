package process

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema/metric"
)

// DescProcesses describes the metric of Size.
var DescProcesses = metric.Desc("gputap_consumer_state_processes")

// Size returns the number of processes as the metric of a fold.
func (t *Table[S]) Size(fold string) prometheus.Metric {
	return prometheus.MustNewConstMetric(DescProcesses, prometheus.GaugeValue, float64(len(t.entries)), fold)
}

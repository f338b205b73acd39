package page

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// totals adds up the counters and histograms that belong to no host. Several shards count in one such series, and
// shards move between instances: then the sum of their values would go back, which Prometheus takes for a restart. So a
// total adds the growth of each part. What a part counted before it came is in the total of the instance that had it.
type totals struct {
	sums map[string]*merged // by key
	last map[prometheus.Collector]map[string]*dto.Metric
}

// round is one scrape.
type round struct {
	*totals
	sums map[string]*merged // of the series that some part still has
	last map[prometheus.Collector]map[string]*dto.Metric
}

func (t *totals) begin() *round {
	return &round{totals: t, sums: map[string]*merged{}, last: map[prometheus.Collector]map[string]*dto.Metric{}}
}

// take adds a metric of a part and reports whether it belongs to no host.
func (r *round) take(part prometheus.Collector, m *merged) bool {
	if m.metric.Gauge != nil || !ofNoHost(m.metric) {
		return false
	}
	seen, known := r.totals.last[part]
	if r.last[part] == nil {
		r.last[part] = map[string]*dto.Metric{}
	}
	r.last[part][m.key] = m.metric
	sum := r.totals.sums[m.key]
	if sum == nil {
		sum = r.sums[m.key]
		known = true // the series is new: nothing can jump
	}
	if sum == nil {
		sum = &merged{m.desc, m.family, m.key, grown(m.metric, m.metric)}
		sum.metric.Label = m.metric.Label
	}
	r.sums[m.key] = sum
	if known {
		sum.add(grown(m.metric, seen[m.key]))
	}
	return true
}

// end forgets the series that no part has any more, and returns copies of the others.
func (r *round) end() (all []*merged) {
	r.totals.sums, r.totals.last = r.sums, r.last
	for _, sum := range r.sums {
		copied := grown(sum.metric, nil)
		copied.Label = sum.metric.Label
		all = append(all, &merged{sum.desc, sum.family, sum.key, copied})
	}
	return all
}

// ofNoHost reports whether several shards may have a series.
func ofNoHost(m *dto.Metric) bool {
	for _, l := range m.Label {
		if name := l.GetName(); name == "shard" || name == "hostname" && l.GetValue() != "" {
			return false
		}
	}
	return true
}

// Package page joins the metrics of a consumer's shards into one page for Prometheus, within limits on its series.
//
// Limits. A family that names programs or hosts has at most 2,000 series, and all such families together 20,000. The
// rest is counted under the label value other; gputap_consumer_series_overflow_total says how often.
//
// Counters and histograms never decrease while a shard moves or a limit takes effect.
//
// Concurrency. A Page may be collected by any number of goroutines; one collects at a time.
package page

// Package alert is the form of an alert and its life: it fires, repeats, and clears under one id.
//
// A fold embeds a Book and hands it findings. The Book decides whether a finding is a new alert, a repetition of one
// that fires, or a repetition within the cool-down of one that has cleared. The Book also owns the metrics of alerts.
//
// # Identity
//
// A Key tells findings apart: rule, process, GPU, and a detail of the rule. At most one alert of a Key fires at a time.
// Its id is a hash of the Key and of the time since which the finding holds. Equal input gives equal ids, so a fold
// that reads the same batches again after a restart raises the same alerts under the same ids.
//
// # Limits
//
// A Book keeps every alert that fires and the 1,000 that cleared last. At most 100 alerts of a host and 10,000 of a
// Book fire at a time. Findings above these limits are counted as suppressed with the reason limit. Where hosts of
// several Books are joined, more than 10,000 may fire until some clear.
//
// # Time and concurrency
//
// All times are event times of the host, as wall time. The wall clock plays no part. A Book has no lock: the fold that
// embeds it holds its own lock for every call.
package alert

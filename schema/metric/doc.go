// Package metric is the one table of the metric families that gputap's programs show: name, type, labels, HELP,
// component and life. docs/metrics.md is generated from it by `go test ./schema/metric -update`.
//
// Collectors take their descriptions from the table by name. A name that is not in the table panics when the package
// of the collector is initialised, so every test finds it. Check compares a scrape with the table.
//
// The unit is the end of the name: bytes, seconds, or a ratio; all other families count things. Counters end in _total.
package metric

// Package report joins the reports of all folds by process. gputap run joins the folds of its own process; package
// answer adds the rows that the shards of a fleet answer. Both show the same Snapshot and the same Process.
//
// The JSON keys of its types are a contract: docs/output.md. A figure of a fold that did not answer about a process is
// null, never 0. One file for each fold knows the types of its report. A Snapshot is used by one goroutine at a time.
package report

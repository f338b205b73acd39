// Package coverage keeps what hosts say of themselves in their heartbeats: their GPUs, which symbols of
// each driver library are probed, absent or failed, and what processes got from the driver unseen.
//
// A heartbeat replaces the one before, so a report is as of the last: by default ten seconds old at
// most. Of processes the 1,024 youngest of a host are kept after their end. Lost heartbeats only make it older. At most 10,000 hosts are kept, those booted last.
//
// Snapshot and Restore carry it over, a section for each host.
//
// Apply, Snapshot and Restore are called by one goroutine at a time; Report and Collect may run beside it.
package coverage

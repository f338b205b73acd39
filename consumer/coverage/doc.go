// Package coverage reports the visibility of CUDA calls on each host: its GPUs, which symbols of each driver library
// are probed, absent or failed, and which driver functions without a probe processes obtained. It folds heartbeats.
//
// A heartbeat replaces the previous one, so a report is as old as the last heartbeat: at most ten seconds by default.
// Lost heartbeats only make the report older. A host keeps its 1,024 youngest processes, ended ones included. The fold
// keeps at most 10,000 hosts, those with the latest boots.
//
// Snapshot and Restore preserve the state, one section per host.
//
// One goroutine at a time calls Apply, Forget, Snapshot and Restore. Any number of goroutines may call Report and
// Collect meanwhile.
package coverage

// Package demo runs known programs on a stub CUDA driver through real uprobes, and compares the
// results of gputap with the totals of the stub and the programs.
//
// No comparison depends on how Linux schedules the programs: counts and bytes must be equal, and a rate must lie
// between bounds that were measured around and inside the same calls.
package demo

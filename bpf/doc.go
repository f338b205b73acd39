// Package bpf contains the programs that run in Linux and their loader. A pair of programs, entry and return, serves
// the calls of schema.Calls that write the same record type.
//
// The least Linux is 5.15 (attach cookies), with BTF. Programs attach to a library file, with uprobe_multi on Linux 6.6
// and later, else with one perf event per symbol. The attach cookie contains the row of schema.Calls.
//
// Records. Memory, process, name and device records go to the control ring, in the order in which the calls returned.
// Launches, copies and syncs go to the bulk ring of their CPU, which several CPUs may share, without order across CPUs.
// A record is written whole or not at all. The first record of a thread announces it.
//
// Loss. A record that cannot be written is counted per CPU and cause in the map cpus. The traced program never waits.
//
// Wake-ups. Records do not wake the reader, except one in 4,096 at most and announcements. The reader must poll.
package bpf

// Package bpf is what runs in Linux: one program pair per argument shape of schema.Calls, and the
// records they write.
//
// Least Linux is 5.15 (attach cookies), with BTF. Programs attach to a whole library file, with uprobe_multi
// where Linux has it (6.6), else with a perf event for each symbol; the attach cookie is the row of
// schema.Calls.
//
// Records. Memory, process, name and device records go to the ring control, in the order in which
// the calls returned; launches and copies go to the ring of the CPU they ran on, in no order across
// CPUs. A record is written in full or not at all. A thread's first record is its announcement.
//
// Loss. Whatever cannot be written is counted per CPU and cause in the map cpus, and nothing else
// happens: the traced program is never held up.
//
// Wake-ups. Records are submitted without waking the reader, but for one in some thousands and for
// announcements: the reader must poll.
package bpf

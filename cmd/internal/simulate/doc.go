// Package simulate replays a recorded run as a fleet of hosts onto a bus: load, and something to look at,
// without GPUs.
//
// Identity. Every host has a name, boot, GPUs, process and thread ids, addresses and handles of its own;
// no two hosts share one. What else the recording says of a process (exe, user, container, pod) stays.
// About one host in 32 has a wall clock that is wrong by up to ten minutes.
//
// Pace. All hosts together make Options.Rate events a second. The recording's order and its bursts stay,
// its idle stretches do not: every few events, at most 512, take the time that the rate gives them. Calls take as long as
// recorded, or less where the next event is nearer. A batch closes at 4,096 events, 128 KiB or
// Options.BatchAge, and is made when its last event is due. A simulator that is late makes the same
// batches, later; Stats.Behind says how late.
//
// Lives. When the recording ends, a host tells the exits of the processes that are left and starts over
// with new ones. Its boot, and its producer's run with seq and losses, go on, so that processes keep
// complete evidence; with Options.Restart each life is a new run of the producer as well.
//
// Delivery. Seq counts without holes in each (host, boot, run, kind), and the batches of one host and kind
// are published in order, one in flight, each until it is acked; a batch may be stored twice, as a
// producer's may. Memory is bounded: where acks do not come nothing more is made. With Options.Lose some batches are
// withheld: their seq is left out and their events are counted in the batches after them, as a producer
// whose spool was full does it.
//
// Determinism. The same options, start time and profile make the same bytes for each host and kind.
//
// Truth. Options.LogPath names a file that gets every batch before it is published: see ReadLog.
package simulate

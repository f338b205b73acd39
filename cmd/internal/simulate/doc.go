// Package simulate replays a recorded run onto NATS as if a fleet of hosts produced it. It makes load and examples
// without GPUs.
//
// Identity. No two hosts share a name, boot, GPU, process id, thread id, address or handle. Other fields of a process
// (exe, user, container, pod) are those of the recording. About one host in 32 has a wall clock that is wrong by up to
// ten minutes.
//
// Pace. All hosts together make Options.Rate events a second. The order and the bursts of the recording stay, but idle
// times do not: each window of at most 512 events takes the time that the rate allows. Calls take as long as recorded,
// or less if the next event comes sooner. A batch closes at 4,096 events, 128 KiB or Options.BatchAge, and is made when
// its last event is due. A late simulator makes the same batches later; Stats.Behind is its delay.
//
// Lives. At the end of the recording a host reports the exits of its live processes and replays the recording with new
// processes. Boot, run, seq and losses continue, so that processes keep complete evidence. With Options.Restart each
// life is also a new run of the producer.
//
// Jobs. With Options.Jobs the first hosts do not replay the recording. Each has one rank of a job of eight: one process
// that computes and then waits for the slowest rank, step by step, with noise of 2 % and rare disturbances. All ranks
// of a job launch equally often. With Options.SlowRank one rank computes longer, so it waits less than the others. With
// Options.LeakRank another rank allocates memory in each step and never frees it.
//
// Delivery. Seq counts without gaps in each (host, boot, run, kind). Batches of one host and kind are published in
// order, one in flight, and retried until acked; like a producer's, a batch may be stored twice. At most 64 MiB are in
// flight; then the simulator stops making batches. With Options.Lose some batches are withheld: later batches count
// their events as lost, as a producer with a full spool does.
//
// Determinism. The same options, start time and profile make the same bytes for each host and kind.
//
// Truth. Every batch is written to the log Options.LogPath before it is published: see ReadLog.
package simulate

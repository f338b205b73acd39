// Command chaos runs a fleet of real processes on loopback and disturbs it: three nats-server nodes with three replicas
// of everything, simulated hosts, and three instances of each consumer. It kills and pauses consumers, simulators and
// nodes, cuts connections, delays a checkpoint commit until another instance owns the shard, fills the disk of a node
// and restarts the whole cluster. The seed determines what happens, and when. Then it lets the fleet recover and
// compares.
//
// The truth is the simulators' log of all batches, written before they publish them and counted without package
// consumer. A run fails if one of these is true:
//   - A logged batch is not in its shard's stream, or it is there under another subject, out of order or changed.
//   - An undisturbed reader counts other batches, events or losses than were published.
//   - A committed state shows other calls, launches, copies or bytes of a process than were published.
//   - A committed state differs in any byte from the state of an undisturbed reader.
//   - A damaged batch is not in the dead letters exactly once for each fold.
//   - No alert is stored, or one whose failed allocation was never published.
//   - The stream stored a commit that is older than the one that it replaced.
//   - A program crashed or ended with a status other than 0.
//   - Something that the run must exercise did not happen: a takeover, a commit of a fenced instance, a repeated batch,
//     a withheld batch, batches of every host.
//
// Durations are reported and never judged.
package main

// Command chaos runs a fleet of real processes on loopback and hurts it: three nats-server nodes with three replicas of
// everything, simulated hosts, three instances of each consumer. At random, and reproducibly by its seed, it kills and
// pauses consumers, producers and nodes, cuts connections, fills a node's disk and restarts the whole cluster. Then it
// lets the fleet come to rest and compares.
//
// The truth is what the simulators logged before they published it. A run fails when a batch of it is not in its shard's
// stream, or out of order, or changed; and when the state that a consumer committed is not, byte for byte, what one
// undisturbed reader makes of that stream.
package main

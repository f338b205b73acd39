// Command outage takes the bus away from a host for long and restarts the host meanwhile, in one run that anybody can repeat.
//
// The host is a machine in qemu with a Linux of its own, a disk and gputap-producer, whose outbox is on that disk; programs call
// the stub driver all the time. Outside are nats-server and gputap-leak. nats-server is killed, and comes back with the same
// store; in the middle of the outage the host reboots, or with -power-cut loses its power.
//
// The truth is what the stub counted of each program, and when each program ran by the host's clock: the guest writes both to a
// serial line, which no power cut takes back. A run fails when the stream does not hold each of these calls exactly once, with a
// time at which its program ran.
//
// It is also the first process of what it boots.
package main

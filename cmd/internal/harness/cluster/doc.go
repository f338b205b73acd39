// Package cluster starts real processes for programs that load or hurt them: the nodes of a NATS cluster on loopback,
// and gputap's own commands. It tells what a process has used, and may give it CPUs of its own. Whatever is started
// ends with the thread that started it.
package cluster

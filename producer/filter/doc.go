// Package filter chooses the processes that gputap watches.
//
// Linux applies the filter: once per thread at its first call, and again after an exec. If a thread has passed, later
// threads of the process pass, too, whatever its name is then. A call that does not pass costs little more than an
// empty probe and leaves no trace. A thread that changes its name, user or control group later keeps the first
// decision.
//
// Resolve translates names, pids and uids once, at the start. A CgroupTree follows control groups while gputap runs:
// Linux reports a new group before a process enters it; a walk of the tree finds groups whose report was lost.
// One goroutine uses a CgroupTree.
package filter

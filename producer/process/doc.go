// Package process is the table of traced processes: their identity, threads, GPUs, kernels, graphs and pinned host
// memory. It also keeps the state of package pairing for each process and thread.
//
// A Table learns from a record before the record is translated (learn.go), and answers questions while it is
// translated. Learning never changes a record; answers never depend on an open batch.
//
// Order. Records of the control ring arrive in the order of the calls. Launches and copies arrive from other rings,
// later, so the table keeps the earlier meanings of a reused handle, and answers for the time of a call.
//
// Loss. The memory of the table is bounded, whatever programs do (budget.go). Beyond the bounds names, graph contents
// and GPUs become unknown; events are never lost. If the record of an exit was lost, Vanished finds the process.
//
// Concurrency. One goroutine uses a Table and everything that it returns. The memory of traced processes is read with
// process_vm_readv; a process that ended yields nothing.
package process

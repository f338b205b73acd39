// Package outbox stores encoded batches in a directory until NATS has acked them, so that they outlive the producer
// and a reboot.
//
// Order. Within a kind, batches come out as they were appended. No batch of a run comes out while one of an earlier run
// is not acked, of whatever kind.
//
// Delivery. A batch comes out of Next until it is acked. After a kill, batches acked in the last second come out again;
// readers drop them by their seq.
//
// Durability. A kill takes nothing that Append stored, a power cut the batches of the last SyncInterval.
//
// Loss. Every event that is dropped, corrupt or missing adds to Options.Lost, which batches report. The state file has
// the number that no acked batch reported; the next run adds it to its own losses. A file is deleted only when the
// state file has its losses.
//
// Limits. Beyond MaxBytes whole segments are dropped, the oldest of the least precious kind (DropOrder). No file makes
// the outbox allocate more than one batch of 2 MiB.
//
// Failing disks. One that is full, read-only, failing, or silent for Timeout makes Append fail and Stats.Bypass allow
// that batches go around the outbox, until it works again. Next goes on reading. A directory that was removed or
// replaced counts as a failing disk for the rest of the run.
//
// Concurrency. One goroutine at a time waits for the disk to be written, by turns. Nobody holds the lock meanwhile.
package outbox

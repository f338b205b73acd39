// Package outbox stores encoded batches in a directory until NATS has acked them, so that they outlive the producer
// and a reboot.
//
// Order. Each kind has a queue of segment files; within a kind, batches come out as they were appended. No batch of a
// run comes out while one of an earlier run is not acked, of whatever kind: a reader that hears of a new boot has
// everything of the boot before.
//
// Delivery. A batch that Append stored comes out of Next until it is acked. After a kill, batches acked in the last
// second come out again; readers drop them by their seq.
//
// Durability. A kill takes nothing that Append stored. A power cut takes the batches stored since the last Sync. CRC32C
// checksums find corrupt batches. If a head is corrupt, the rest of its file is lost. A file that was cut off is used
// up to its last good batch.
//
// Loss. Every event that is dropped, corrupt or cut off adds to Options.Lost, which batches report. The state file
// keeps that number for each run with batches here. The next run adds the losses that no batch reported or will report.
// A file is deleted only when the state file has the losses in it.
//
// Limits. Beyond MaxBytes whole segments are dropped: the oldest of the least precious kind (DropOrder), never one
// with a batch in flight. No file makes the outbox allocate more than one batch of 2 MiB.
//
// Failing disks. One that is full, read-only, failing, or silent for Timeout makes Append fail and Bypass allow that
// batches go around the outbox; Sync tries it again. Next goes on reading; a file that it cannot read for
// ReadTimeout is lost. If the directory is removed or replaced, its batches are lost when they are due, and Append
// fails until the producer is restarted.
//
// Files. A directory belongs to one producer by a lock. It has mode 0700, its files have mode 0600: segments
// (segment.go) and the state file (state.go). Segments of a newer form are kept for a newer program.
//
// Concurrency. One goroutine appends and syncs; it alone waits for the disk, without the lock. The lock guards the
// queues, and no method holds it while it waits.
package outbox

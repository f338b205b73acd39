// Package segment is the files below an outbox: segments, which are files of records with CRC32C checksums, and a state
// file, in a directory that one process locks.
//
// A record is a head of 48 bytes, all numbers little endian, and its data. A segment has the batches of one kind, in
// seq order; its name says how many batches and events come before it. A later form of segment gets other names: names
// that Parse does not know are left alone.
package segment

// Package redact replaces private names in recordings, so that a recording may be shared.
//
// Names. Users, jobs, paths of programs, libraries and control groups, containers, pods, units, hosts and clusters get
// pseudonyms such as user-3f2a91c06b7d. A pseudonym is a keyed hash of the name. The key is random and is not stored,
// so nobody can find a name by trying names. Equal names have equal pseudonyms in one run of the program. Texts of
// alerts are removed.
//
// What stays: names of programs (comm), threads, CUDA kernels, driver functions and GPUs, UUIDs of GPUs, boot ids,
// PIDs, UIDs, addresses, amounts and times.
//
// Numbers. Messages keep their shards, sequences and times, and folds count the same as before. A message that is no
// valid batch, or of a kind that this version does not know, is left out, because its names are not known. So is the
// state of an unknown fold.
package redact

// Package snapshot is the codec of saved state, and the sections in which folds save it: one section for each host, and
// one for the values that cover all hosts.
//
// A section begins with the fold's name and the version of the fold's form. A program reads its own version and all
// earlier ones. It refuses a newer version with ErrVersion, and damaged data or another fold's section with ErrDamaged;
// after that the fold is useless. Damage that looks like a possible state goes unnoticed: whoever stores sections must
// protect their bytes with a checksum.
//
// A Codec writes values or reads them, so that one function describes both directions. Numbers are varints. A string is
// written once in a section. A Reader never reads beyond its bytes, and no count makes it allocate more than a small
// multiple of them.
//
// Sections of hosts are independent: any of them can be restored alone, with or without the section of all hosts.
// Metrics that are summed over hosts, and limits that all hosts share, then continue from the restored sections.
//
// The tests of this package check the snapshots of every fold.
package snapshot

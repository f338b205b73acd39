// Package snapshot is the form in which folds save their state: sections, one of each host and one of
// what a fold keeps of all hosts, and the codec that they are written with.
//
// A section begins with its fold's name and the version of that fold's form. A program reads its own
// version and all before it. A newer one is refused with ErrVersion, and what is damaged, or another
// fold's, with ErrDamaged: a fold whose Restore failed is of no more use. What is damaged in ways that a
// state could have come about is not found out: whoever stores sections guards their bytes.
//
// Numbers are varints, a string stands once in a section. A Reader never reads beyond its bytes, and no
// count makes anybody allocate more than a small multiple of them.
//
// Sections of hosts do not depend on each other: any of them, with or without that of no host, can be
// restored alone. Metrics that are summed over hosts, and bounds that all hosts share, then go on from
// what is there.
package snapshot

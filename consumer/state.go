package consumer

import (
	"errors"
	"fmt"

	"github.com/gputap/gputap/consumer/snapshot"
)

// Section is the state of one host in one fold; the section of no host is what a fold keeps of all of them.
type Section = snapshot.Section

// Stateful is a fold whose state can be saved and taken up again by another instance. Sections are canonical:
// the same state gives the same bytes, sorted by cluster and host, however it came about.
//
// Snapshot calls yield for each section and stops at its first error; Data is yield's only until it returns.
// Restore is called for every section of one snapshot, in their order, on a new fold. It refuses a form that
// it does not know with an error (snapshot.ErrVersion, snapshot.ErrDamaged) and takes older ones; the fold is of
// no use then.
type Stateful interface {
	Fold
	Snapshot(yield func(Section) error) error
	Restore(Section) error
}

// checkName refuses what cannot be part of subjects, keys and the names of JetStream consumers, or would be changed for it and so
// be another fold's name.
func checkName(fold string) error {
	for _, c := range fold {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("fold name %q: use letters, digits, - and _", fold)
		}
	}
	if fold == "" {
		return errors.New("fold without a name: use letters, digits, - and _")
	}
	return nil
}

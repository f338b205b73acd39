package coverage

import (
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

var suite = consumertest.Suite[*Fold]{
	New:    New,
	Report: func(fold *Fold) any { return fold.Report() },
	HostReport: func(fold *Fold, id snapshot.HostID) any {
		return slices.DeleteFunc(fold.Report(), func(h Host) bool { return h.id() != id })
	},
	Golden: 40,
	Damage: 30,
}

func TestSnapshot(t *testing.T) { suite.Run(t) }

func FuzzRestore(f *testing.F) { suite.FuzzRestore(f) }

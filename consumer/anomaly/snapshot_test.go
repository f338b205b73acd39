package anomaly

import (
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

var suite = consumertest.Suite[*Detector]{
	New:    func() *Detector { return New(Config{AllocSizeCooldown: time.Second, Warmup: 10_000}) },
	Report: func(fold *Detector) any { return fold.Alerts() },
	HostReport: func(fold *Detector, id snapshot.HostID) any {
		return slices.DeleteFunc(fold.Alerts(), func(a Alert) bool { return a.host() != id })
	},
	Limited: true,
	Golden:  40,
	Damage:  30,
}

func TestSnapshot(t *testing.T) { suite.Run(t) }

func FuzzRestore(f *testing.F) { suite.FuzzRestore(f) }

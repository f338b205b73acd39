package coverage

import (
	"encoding/json"
	"flag"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

var update = flag.Bool("update", false, "write golden files")

func saved() *Fold { return New() }

// view is all that a Fold shows.
func view(tb testing.TB, fold *Fold) []byte {
	text, err := json.MarshalIndent(fold.Report(), "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return append(text, consumertest.Page(tb, fold)...)
}

func TestResume(t *testing.T) {
	t.Run("recorded run", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Recorded(t), 9, saved, view)
	})
	for seed := range uint64(4) {
		t.Run("traffic", func(t *testing.T) {
			consumertest.Resumes(t, consumertest.Traffic(t, seed, 120), 9, saved, view)
		})
	}
}

func TestHostile(t *testing.T) {
	fold, steps := saved(), consumertest.Traffic(t, 3, 40)
	consumertest.Take(t, fold, steps[:30]...)
	consumertest.Hostile(t, consumertest.Sections(t, fold), saved, view, steps[30:]...)
}

func TestSplit(t *testing.T) {
	consumertest.Splits(t, consumertest.Traffic(t, 9, 200), saved, func(fold *Fold, id snapshot.HostID) []byte {
		text, _ := json.MarshalIndent(slices.DeleteFunc(fold.Report(), func(a Host) bool {
			return a.Cluster != id.Cluster || a.Host != id.Host
		}), "", " ")
		return text
	})
}

func TestGoldenSnapshots(t *testing.T) {
	fold := saved()
	consumertest.Take(t, fold, consumertest.Traffic(t, 4, 40)...)
	consumertest.Golden(t, *update, int(form.Version), fold, saved, view)
}

func FuzzRestore(f *testing.F) { consumertest.FuzzRestore(f, saved, view) }

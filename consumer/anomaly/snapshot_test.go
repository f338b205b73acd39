package anomaly

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

func saved() *Detector { return New(Config{AllocSizeCooldown: time.Second, Warmup: 10_000}) }

// view is all that a Detector shows.
func view(tb testing.TB, fold *Detector) []byte {
	text, err := json.MarshalIndent(fold.Alerts(), "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return append(text, consumertest.Page(tb, fold)...)
}

func TestResume(t *testing.T) {
	t.Run("recorded run", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Recorded(t), 9, saved, view)
	})
	t.Run("more than there are series", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Crowd(t), 4, saved, view)
		fold := saved()
		consumertest.Take(t, fold, consumertest.Crowd(t)...)
		if !strings.Contains(string(consumertest.Page(t, fold)), `comm="other"`) {
			t.Error("there was a series for all")
		}
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
	consumertest.Splits(t, consumertest.Traffic(t, 9, 200), saved, func(fold *Detector, id snapshot.HostID) []byte {
		text, _ := json.MarshalIndent(slices.DeleteFunc(fold.Alerts(), func(a Alert) bool {
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

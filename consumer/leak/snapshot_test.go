package leak

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
)

func shortKeep() *Tracker { return New(Config{KeepEnded: time.Minute, TopScan: 20}) }

// view is all that a Tracker shows.
func view(tb testing.TB) func(*Tracker) []byte {
	return func(t *Tracker) []byte {
		text, err := json.MarshalIndent(struct {
			Report Report
			Top    []Allocation
		}{t.Report(), t.Top(3)}, "", " ")
		if err != nil {
			tb.Fatal(err)
		}
		return append(text, page(tb, t)...)
	}
}

func TestResume(t *testing.T) {
	t.Run("recorded run", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Recorded(t), shortKeep, view(t))
	})
	for seed := range uint64(4) {
		t.Run("traffic", func(t *testing.T) {
			consumertest.Resumes(t, consumertest.Traffic(t, seed, 200), shortKeep, view(t))
		})
	}
}

func TestHostile(t *testing.T) {
	fold := shortKeep()
	steps := consumertest.Traffic(t, 3, 40)
	consumertest.Take(t, fold, steps[:30]...)
	consumertest.Hostile(t, consumertest.Sections(t, fold), shortKeep, view(t), steps[30:]...)
}

var _ = bytes.Equal

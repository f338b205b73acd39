package bandwidth

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

var update = flag.Bool("update", false, "write golden files")

func saved() *Meter { return New(Config{Keep: time.Minute}) }

// view is all that a Meter shows.
func view(tb testing.TB, fold *Meter) []byte {
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
	consumertest.Splits(t, consumertest.Traffic(t, 9, 200), saved, func(fold *Meter, id snapshot.HostID) []byte {
		text, _ := json.MarshalIndent(slices.DeleteFunc(fold.Report(), func(a Process) bool {
			return a.ID.Cluster != id.Cluster || a.ID.Host != id.Host
		}), "", " ")
		return text
	})
}

func TestGoldenSnapshots(t *testing.T) {
	fold := saved()
	consumertest.Take(t, fold, consumertest.Traffic(t, 4, 24)...)
	consumertest.Golden(t, *update, int(form.Version), fold, saved, view)
}

func FuzzRestore(f *testing.F) { consumertest.FuzzRestore(f, saved, view) }

// Hosts of several shards that come together have more series than there are places: the bound holds, and nothing is lost.
func TestSeriesOfSeveralShards(t *testing.T) {
	const each = maxSeries - 100
	joined := New(Config{})
	for _, host := range []string{"x", "y", "z"} {
		fold := New(Config{})
		copies, waits := schema.NewBuilder(schema.KindCopy), schema.NewBuilder(schema.KindSync)
		for i := range uint32(each) {
			process := schema.Process{PID: i, Comm: fmt.Sprint("job", i)}
			copies.AddCopy(&schema.Copy{
				Thread: copies.Thread(schema.Thread{Process: copies.Process(process)}), Bytes: 10, CUDAStream: copies.CUDAStream(0),
				Call: copies.Call(schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD}),
			})
			waits.AddSync(&schema.Sync{
				Thread: waits.Thread(schema.Thread{Process: waits.Process(process)}), Duration: 7, CUDAStream: waits.CUDAStream(0),
				Call: waits.Call(schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync}),
			})
		}
		header := &schema.Header{Cluster: "c", Host: host, Seq: 1}
		for _, b := range []*schema.Builder{copies, waits} {
			if err := fold.Apply(consumertest.Decode(t, b.Encode(header))); err != nil {
				t.Fatal(err)
			}
		}
		consumertest.Restore(t, joined, consumertest.Sections(t, fold)[1:])
	}
	var all sum
	page := joined.scrape()
	for _, s := range page {
		all.add(s)
	}
	if n := maxSeries - overflow + 1; len(page) != n || all.calls != 3*each || all.bytes != 10*3*each {
		t.Errorf("%d series of %+v, want %d", len(page), all, n)
	}
	var waits Waits
	for _, w := range joined.waits {
		waits.add(*w)
	}
	if joined.lateWaits != nil {
		waits.add(*joined.lateWaits)
	}
	if len(joined.waits) != maxSeries-1 || waits != (Waits{3 * each, 7 * 3 * each}) {
		t.Errorf("%d series of %+v, want %d", len(joined.waits), waits, maxSeries-1)
	}
}

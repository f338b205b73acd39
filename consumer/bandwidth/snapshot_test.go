package bandwidth

import (
	"fmt"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Hosts of several shards have more series than the limit. The limit holds, and no copy or wait is lost.
func TestJoinedSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	const each = process.MaxSeries - 100
	joined := New(Config{})
	for _, host := range []string{"x", "y", "z"} {
		fold := New(Config{})
		copies, waits := schema.NewBuilder(schema.KindCopy), schema.NewBuilder(schema.KindSync)
		for i := range uint32(each) {
			row := schema.Process{PID: i, Comm: fmt.Sprint("job", i)}
			copies.AddCopy(&schema.Copy{
				Thread: copies.Thread(schema.Thread{Process: copies.Process(row)}), Bytes: 10,
				CUDAStream: copies.CUDAStream(0),
				Call: copies.Call(schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy,
					Direction: schema.HtoD}),
			})
			waits.AddSync(&schema.Sync{
				Thread: waits.Thread(schema.Thread{Process: waits.Process(row)}), Duration: 7,
				CUDAStream: waits.CUDAStream(0),
				Call:       waits.Call(schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync}),
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
	page := joined.moves.Page()
	for _, s := range page {
		all.Add(&s)
	}
	if n := process.MaxSeries - 2*int(numRows) + 1; len(page) != n || all.calls != 3*each || all.bytes != 10*3*each {
		t.Errorf("%d series of %+v, want %d", len(page), all, n)
	}
	var sum Waits
	waits := joined.waits.Page()
	for _, w := range waits {
		sum.Add(&w)
	}
	if len(waits) != process.MaxSeries || sum != (Waits{3 * each, 7 * 3 * each}) {
		t.Errorf("%d series of %+v, want %d", len(waits), sum, process.MaxSeries)
	}
}

package bandwidth_test

import (
	"testing"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// A successful wait counts with its time. Queries, records and failed waits only count as calls.
func TestWaits(t *testing.T) {
	t.Parallel()
	b := schema.NewBuilder(schema.KindSync)
	thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 7, Start: 1, Comm: "train"}), TID: 7})
	for _, e := range []struct {
		symbol string
		op     schema.Op
		ns     uint64
		result uint32
	}{
		{"cuStreamSynchronize", schema.OpSync, 1000, 0},
		{"cuCtxSynchronize_v2", schema.OpSync, 500, 0},
		{"cuStreamSynchronize", schema.OpSync, 9999, 700},
		{"cuEventQuery", schema.OpQuery, 50, 600},
		{"cuEventRecord", schema.OpEventRecord, 60, 0},
	} {
		b.AddSync(&schema.Sync{
			Time: 10, Duration: e.ns, Thread: thread, Call: b.Call(schema.CallRef{Symbol: e.symbol, Op: e.op}),
			Result: e.result, CUDAStream: b.CUDAStream(0),
		})
	}
	m := bandwidth.New(bandwidth.Config{})
	if err := m.Apply(consumertest.Decode(t, b.Encode(&schema.Header{Cluster: "c", Host: "h", Seq: 1}))); err != nil {
		t.Fatal(err)
	}
	report := m.Report()
	if len(report) != 1 || report[0].Waits != (bandwidth.Waits{Calls: 2, NS: 1500}) {
		t.Fatalf("got %+v", report)
	}
	calls := map[string][2]uint64{}
	for _, c := range report[0].Calls {
		calls[c.Symbol] = [2]uint64{c.OK, c.Failed}
	}
	if calls["cuStreamSynchronize"] != [2]uint64{1, 1} || calls["cuEventQuery"] != [2]uint64{0, 1} ||
		calls["cuEventRecord"] != [2]uint64{1, 0} {
		t.Errorf("calls are %v", calls)
	}
}

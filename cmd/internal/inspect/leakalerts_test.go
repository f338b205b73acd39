package inspect

import (
	"encoding/json"
	"testing"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestAlertsOfAllFoldsAreShown: one process runs out of memory, which gputap-anomaly finds. It frees half of its memory
// before it ends, which gputap-leak finds. NATS stores both alerts.
func TestAlertsOfAllFoldsAreShown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "serve")
	p.GPU = &schema.GPU{UUID: "GPU-1", Bytes: 8 << 30}
	p.Alloc(7, 1<<32, 1<<30, 10, 1).Alloc(7, 2<<32, 1<<30, 20, 1).Fail("cuMemAlloc_v2", 7, 2, 7<<30, 30).
		Free(7, 1<<32, 1e9, 1).Exit(2e9)
	f.publish("test", "gpu-1", schema.KindMemory, h.Message())
	f.consume("leak", leakProgram{})
	f.consume("anomaly", anomalyProgram{})
	f.settled("leak")
	f.settled("anomaly")
	alerts := list[alert.Alert](f, "alerts", "--comm", "serve")
	found := map[string]uint64{}
	for _, a := range alerts.Items {
		found[a.Rule+" "+a.Severity] = a.Bytes
	}
	if len(found) != 2 || found["oom critical"] != 7<<30 || found["unfreed_at_exit info"] != 1<<30 ||
		alerts.Total != 2 {
		t.Errorf("found %v of %d", found, alerts.Total)
	}
	if others := list[alert.Alert](f, "alerts", "--comm", "other"); len(others.Items) > 0 {
		t.Errorf("another command has alerts: %+v", others.Items)
	}
	s := answer.Status{}
	out, _, _ := f.typed("status", "-o", "json")
	if f.check(json.Unmarshal([]byte(out), &s)); s.Alerts.Newest == nil {
		t.Errorf("the status has no alert: %s", out)
	}
	jsStream, err := f.js.Stream(t.Context(), schema.OutStream)
	f.check(err)
	m, err := jsStream.GetLastMsgForSubject(t.Context(), "gputap.v1.out.alert.leak.test.gpu-1")
	f.check(err)
	var stored alert.Alert
	if f.check(json.Unmarshal(m.Data, &stored)); stored.Rule != "unfreed_at_exit" {
		t.Errorf("stored %s", m.Data)
	}
}

package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

// Two GPUs whose UUID is unknown are one item. The sums were computed by hand.
func TestTorchOfUnknownGPUs(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0).UTC()
	s := New(at.Add(time.Minute))
	s.AddTensors(&tensor.Process{Info: process.Info{ID: schema.ProcessID{PID: 7}}, GPUs: []tensor.GPU{
		{Allocated: tensor.Level{Bytes: 3, Peak: 30}, Reserved: tensor.Level{Bytes: 10, Peak: 40}, Blocks: 2,
			Largest: []tensor.Block{{Ptr: 0x700, Bytes: 2, TID: 8, Comm: "pt", At: at}}},
		{Allocated: tensor.Level{Bytes: 5, Peak: 50}, Reserved: tensor.Level{Bytes: 4, Peak: 60}, Blocks: 1},
	}})
	got, err := json.Marshal(s.Processes[0].Torch)
	const want = `{"unknown":{"allocated_bytes":8,"reserved_bytes":14,"cached_bytes":7,"peak_allocated_bytes":80,` +
		`"peak_reserved_bytes":100,"blocks":3,"verdict":"warming","cache_verdict":"warming","slope_bytes_per_hour":0,` +
		`"suspect_bytes":0,"why":"","largest_blocks":[{"address":"0x700","bytes":2,"tid":8,"thread":"pt",` +
		`"since":"1970-01-01T00:16:40Z"}]}}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	var text strings.Builder
	s.Processes[0].Describe(&text, s.Time)
	if line := "    0x700                    2 B  thread 8 pt, 1m0s old\n"; !strings.Contains(text.String(), line) {
		t.Errorf("got\n%swant the line\n%s", text.String(), line)
	}
}

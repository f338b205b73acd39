package event

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
)

// FuzzAppendJSON compares the line with that of encoding/json.
func FuzzAppendJSON(f *testing.F) {
	f.Add("gpu-1", "a<b>(\"é\\\u2028\x7f\xff\n&)", uint64(1), uint32(0), uint8(3))
	f.Add("", "", uint64(0), uint32(7), uint8(0))
	f.Add("h", "plain", uint64(999), uint32(1), uint8(1))
	f.Add("h", "plain", uint64(1<<63), uint32(1), uint8(2))
	f.Fuzz(func(t *testing.T, host, text string, n uint64, small uint32, length uint8) {
		numbers := []uint32{small, 1, ^small}[:length%4]
		e := Event{Time: app.Time{Time: time.Unix(int64(n%(1<<33)), int64(small))}, Cluster: text, Host: host,
			PID: small, TID: uint32(n), Comm: text, Kind: host, Symbol: text, Class: text, Direction: host, GPU: text,
			Result: small, Bytes: n, Address: text, Seconds: float64(n) / 1e9, Kernel: text,
			Grid: numbers, Block: numbers}
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(&e); err != nil {
			t.Fatal(err)
		}
		if got := e.AppendJSON(nil); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("\n%s, want\n%s", got, want.Bytes())
		}
	})
}

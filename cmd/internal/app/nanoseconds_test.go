package app

import (
	"encoding/json"
	"testing"
	"time"
)

func TestTimeHasNineDigits(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 3600)
	for nanoseconds, want := range map[int]string{
		0:         "2026-01-02T02:04:05.000000000Z",
		705646940: "2026-01-02T02:04:05.705646940Z",
		123456789: "2026-01-02T02:04:05.123456789Z",
	} {
		at := Time{time.Date(2026, 1, 2, 3, 4, 5, nanoseconds, zone)}
		data, err := json.Marshal(struct{ At Time }{at})
		if err != nil || string(data) != `{"At":"`+want+`"}` || at.String() != want {
			t.Errorf("%d ns: %v, %s and %s, want %s", nanoseconds, err, data, at, want)
		}
		var back struct{ At Time }
		if err := json.Unmarshal(data, &back); err != nil || !back.At.Equal(at.Time) {
			t.Errorf("%s: %v, reads as %v", data, err, back.At)
		}
	}
}

package answer

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestCompleteSince(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	const week = 7 * 24 * time.Hour
	for _, row := range []struct {
		name  string
		first uint64 // sequence
		bytes uint64 // of 1000
		age   time.Duration
		want  time.Time
	}{
		{"empty", 0, 0, week, day(1)},
		{"nothing was removed", 1, 990, week, day(1)},
		{"evicted for new messages", 40, 990, week, day(20)},
		{"removed by age", 40, 100, week, day(14)},
		{"removed by age, younger than its age", 40, 100, 90 * 24 * time.Hour, day(1)},
	} {
		info := &jetstream.StreamInfo{Created: day(1), TimeStamp: day(21)}
		info.Config.MaxBytes, info.Config.MaxAge = 1000, row.age
		info.State.FirstSeq, info.State.Bytes, info.State.FirstTime = row.first, row.bytes, day(20)
		if got := completeSince(info); !got.Equal(row.want) {
			t.Errorf("%s: complete since %s, want %s", row.name, got, row.want)
		}
	}
}

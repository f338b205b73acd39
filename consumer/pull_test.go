package consumer

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestPullsFitTheConnection: all shards of one instance together request less than a server, by default, lets a
// connection have in flight.
func TestPullsFitTheConnection(t *testing.T) {
	t.Parallel()
	const shards, serverKeeps = 16, 64 << 20
	f := newFleet(t, shards)
	var mu sync.Mutex
	most := map[string]int{} // by JetStream consumer
	if _, err := f.admin.Conn().Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(m *nats.Msg) {
		var pull struct {
			MaxBytes int `json:"max_bytes"`
		}
		if err := json.Unmarshal(m.Data, &pull); err != nil {
			t.Errorf("pull %q: %v", m.Data, err)
		}
		mu.Lock()
		defer mu.Unlock()
		most[m.Subject] = max(most[m.Subject], pull.MaxBytes)
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.admin.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	f.instance("one", newChain)
	eventually(t, "all shards are pulled from", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(most) >= shards
	})
	mu.Lock()
	defer mu.Unlock()
	sum := 0
	for _, bytes := range most {
		sum += bytes
	}
	if sum == 0 || sum > serverKeeps*3/4 { // requests in flight come on top
		t.Fatalf("%d shards ask for %d bytes, and a server keeps %d", len(most), sum, serverKeeps)
	}
}

func TestPullBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ asked, shards, want int }{
		"one shard":       {0, 1, 8 << 20},
		"four":            {0, 4, 8 << 20},
		"sixteen":         {0, 16, 2 << 20},
		"many":            {0, 1024, 1 << 20},
		"little asked":    {3 << 20, 1, 3 << 20},
		"much for many":   {64 << 20, 16, 2 << 20},
		"much for itself": {64 << 20, 1, 32 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pullBytes(c.asked, c.shards); got != c.want {
				t.Fatalf("got %d, want %d", got, c.want)
			}
		})
	}
}

package consumer

import (
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// slow is a chain that takes its time.
type slow struct{ *chain }

func (s slow) Apply(b *schema.Batch) error {
	time.Sleep(20 * time.Millisecond)
	return s.chain.Apply(b)
}

// TestSlowFoldSavesAndStops: a fold that cannot keep up still saves its state. When it is stopped it releases its
// shard at once, not after all fetched messages.
func TestSlowFoldSavesAndStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	const sent = 300 // 6 s of work, less than is fetched at once
	for range sent {
		f.send("h")
	}
	i := f.instance("slow", func() Stateful { return slow{newChain().(*chain)} })
	saved := func() uint64 { return f.manifest(0).Sequence }
	eventually(t, "it saves its state on the way", func() bool { return saved() > 0 })
	if n := saved(); n == sent {
		t.Error("it saved its state when all was folded")
	}
	i.stop()
	if n := saved(); n == sent {
		t.Error("it folded all that was fetched before it stopped")
	}
	f.finish()
	f.expect(f.committed())
}

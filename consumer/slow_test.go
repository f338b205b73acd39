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

// TestASlowFold: a fold that is slower than what is sent to it saves its state on the way, and gives its shard away when it is told to
// stop, not when it has folded all that was fetched.
func TestASlowFold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	const sent = 1000 // 20 s of work, less than is fetched at once
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

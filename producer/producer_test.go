package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gputap/gputap/producer/attach"
	"github.com/gputap/gputap/schema"
)

// TestWrongShardsEndAtOnce: when the number of shards is wrong, open batches go to the outbox, or the error reports
// them as lost; nothing is waited for.
func TestWrongShardsEndAtOnce(t *testing.T) {
	for _, outbox := range []bool{false, true} {
		t.Run(fmt.Sprintf("outbox=%v", outbox), func(t *testing.T) {
			dir := t.TempDir()
			r := newTestTranslator()
			p := &Producer{spool: r.batches.spool, batches: r.batches, translator: r, known: r.known,
				probes: &attach.Probes{}, metrics: r.metrics, log: quiet()}
			p.cfg.DrainTimeout = time.Hour
			stored, finish := context.WithCancel(t.Context())
			defer finish()
			var storing sync.WaitGroup
			if outbox {
				p.spool = spoolAt(t, dir, 1<<20)
				p.batches.spool = p.spool
				storing.Go(func() { p.spool.store(stored) })
			}
			p.batches.open[schema.KindLaunch].AddLaunch(&schema.Launch{Time: 1})
			p.batches.added(schema.KindLaunch, 1)
			refused := fmt.Errorf("%w: 16, not 4", ErrShards)
			p.flush(refused)
			finish()
			storing.Wait()
			err := p.unsent(refused)
			if says := strings.Contains(err.Error(), "1 batches") && strings.Contains(err.Error(),
				"are lost"); !errors.Is(err, ErrShards) || says == outbox {
				t.Errorf("ends with %v", err)
			}
			if !outbox {
				return
			}
			left := spoolAt(t, dir, 1<<20)
			for _, kind := range []schema.Kind{schema.KindLaunch, schema.KindHost} {
				if n := left.waiting(kind); n != 1 {
					t.Errorf("%d batches of kind %v are in the outbox, want 1", n, kind)
				}
			}
		})
	}
}

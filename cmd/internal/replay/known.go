package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// lookups is the number of requests at a time.
const lookups = 16

// refuseKnown returns an error if a bus has messages of a run that the recording has.
func (all *origins) refuseKnown(ctx context.Context, js jetstream.JetStream, t schema.Topology) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, group := make(chan *origin), sync.WaitGroup{}
	for range lookups {
		group.Go(func() {
			k := &known{js: js, decoder: schema.NewDecoder()}
			for o := range work {
				for _, generation := range t.Generations() {
					if err := k.refuse(ctx, o, generation.Shard(o.cluster, o.host)); err != nil {
						cancel(err)
					}
				}
			}
		})
	}
	for _, o := range all.bySubject {
		if ctx.Err() != nil {
			break
		}
		work <- o
	}
	close(work)
	group.Wait()
	return context.Cause(ctx)
}

// known looks for runs of a recording on a bus. One goroutine uses it.
type known struct {
	js      jetstream.JetStream
	decoder *schema.Decoder
	batch   schema.Batch

	jsStream jetstream.Stream
	subject  string
}

// refuse returns an error if a shard has messages of a run of o. It reads the last message and the first one. Only if
// other runs have both, it searches: each run costs as many reads as the number of stored messages has binary digits.
// The search relies on the order of the runs in time. It may overlook a run between runs that were published in another
// order.
func (k *known) refuse(ctx context.Context, o *origin, shard int) error {
	if len(o.runs) == 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	var err error
	k.jsStream, err = k.js.Stream(asking, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) { // of an earlier generation
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", schema.StreamName(shard), err)
	}
	k.subject = o.subject(shard)
	last, err := k.jsStream.GetLastMsgForSubject(asking, k.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the last message of %s: %w", k.subject, err)
	}
	if err := k.check(o, last); err != nil {
		return err
	}
	first, err := k.next(ctx, 1)
	if err != nil || first == nil {
		return err
	}
	if err := k.check(o, first); err != nil {
		return err
	}
	for id, began := range o.runs {
		if err := k.search(ctx, o, id, began, first.Sequence+1, last.Sequence); err != nil {
			return err
		}
	}
	return nil
}

// search looks for the first message of a run or of a later one, at sequences from low to below high. It returns an
// error if it reads a message of a run of o.
func (k *known) search(ctx context.Context, o *origin, id run, began int64, low, high uint64) error {
	for low < high {
		middle := low + (high-low)/2
		m, err := k.next(ctx, middle)
		if err != nil {
			return err
		}
		if m == nil || m.Sequence >= high {
			high = middle
			continue
		}
		if err := k.check(o, m); err != nil {
			return err
		}
		if k.before(id, began) {
			low = m.Sequence + 1
		} else {
			high = middle
		}
	}
	return nil
}

// before reports whether the run of the message that was checked last began before another one. Wall clocks, which may
// be set, matter only between boots.
func (k *known) before(id run, began int64) bool {
	if k.batch.BootID == id.boot {
		return k.batch.Run < id.began
	}
	return beginning(&k.batch) < began
}

// next returns the first message of the subject at a sequence or later; nil: there is none.
func (k *known) next(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	m, err := k.jsStream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(k.subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a message of %s: %w", k.subject, err)
	}
	return m, nil
}

// check returns an error if a message is of a run of o. A message that is no batch counts as one of an early run.
func (k *known) check(o *origin, m *jetstream.RawStreamMsg) error {
	b := &k.batch
	if k.decoder.Decode(m.Data, b) != nil {
		*b = schema.Batch{}
		return nil
	}
	if _, has := o.runs[runOf(b)]; !has {
		return nil
	}
	return fmt.Errorf("publish the recording: NATS already has batches of host %s of cluster %s from the same boot "+
		"(%s) and run, so consumers would drop those of the recording as duplicates: remove the streams with "+
		"gputap stream rm, or use another bus", b.Host, b.Cluster, b.BootID)
}

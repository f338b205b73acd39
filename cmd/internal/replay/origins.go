package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// origin is the host and kind of the messages of one subject.
type origin struct {
	cluster, host string // real names; those of the subject if no message of it is a batch
	tokens        string // of the subject behind the shard
	kind          string
	runs          map[run]bool
	named         bool // by a batch
}

// run is one run of a producer, or of what publishes for a job.
type run struct {
	boot  string
	began uint64
}

// subject returns the subject of the messages in a shard.
func (o *origin) subject(shard int) string {
	return strings.TrimSuffix(schema.ShardSubjects(shard), ">") + o.tokens
}

// origins are those of a recording, by subject.
type origins struct {
	bySubject map[string]*origin
	events    uint64
}

// readOrigins reads the selected messages of a file.
func readOrigins(ctx context.Context, f *File) (*origins, error) {
	all := &origins{bySubject: map[string]*origin{}}
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	for m, err := range f.inFileOrder() {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		o := all.bySubject[m.Subject]
		if o == nil {
			o = newOrigin(m.Subject)
			all.bySubject[m.Subject] = o
		}
		if err := decoder.Decode(m.Data, b); err != nil || b.Seq == 0 {
			continue // consumers have to see it too
		}
		if !o.named {
			o.cluster, o.host, o.named = strings.Clone(b.Cluster), strings.Clone(b.Host), true
		}
		if id := (run{b.BootID, b.Run}); !o.runs[id] {
			o.runs[run{strings.Clone(b.BootID), b.Run}] = true
		}
		all.events += uint64(b.Events)
	}
	return all, nil
}

func newOrigin(subject string) *origin {
	o := &origin{runs: map[run]bool{}}
	if parts := strings.SplitN(subject, ".", 5); len(parts) == 5 {
		o.tokens = parts[4]
	}
	parts := strings.Split(o.tokens, ".")
	o.cluster, o.host, o.kind = parts[0], parts[min(1, len(parts)-1)], parts[len(parts)-1]
	return o
}

// lookups is the number of requests at a time.
const lookups = 16

// refuseKnown returns an error if the last message of a subject on a bus is of a run that the recording has.
func (all *origins) refuseKnown(ctx context.Context, js jetstream.JetStream, t schema.Topology) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, group := make(chan *origin), sync.WaitGroup{}
	for range lookups {
		group.Go(func() {
			decoder, b := schema.NewDecoder(), &schema.Batch{}
			for o := range work {
				for _, generation := range t.Generations() {
					shard := generation.Shard(o.cluster, o.host)
					if err := refuse(ctx, js, o, shard, decoder, b); err != nil {
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

func refuse(ctx context.Context, js jetstream.JetStream, o *origin, shard int, decoder *schema.Decoder, b *schema.Batch,
) error {
	asking, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	jsStream, err := js.Stream(asking, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) { // of an earlier generation
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", schema.StreamName(shard), err)
	}
	last, err := jsStream.GetLastMsgForSubject(asking, o.subject(shard))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the last message of %s: %w", o.subject(shard), err)
	}
	if decoder.Decode(last.Data, b) != nil || !o.runs[run{b.BootID, b.Run}] {
		return nil
	}
	return fmt.Errorf("publish the recording: NATS already has batches of host %s of cluster %s from the same boot "+
		"(%s) and run, so consumers would drop those of the recording as duplicates: remove the streams with "+
		"gputap stream rm, or use another bus", b.Host, b.Cluster, b.BootID)
}

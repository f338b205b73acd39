package replay

import (
	"context"
	"errors"
	"strings"

	"github.com/gputap/gputap/schema"
)

// origin is the host and kind of the messages of one subject.
type origin struct {
	cluster, host string // real names; those of the subject if no message of it is a batch
	tokens        string // of the subject behind the shard
	kind          string
	runs          map[run]int64 // when each began by the wall clock of its host, ns
	named         bool          // by a batch
}

// run is one run of a producer, or of what publishes for a job.
type run struct {
	boot  string
	began uint64
}

func runOf(b *schema.Batch) run { return run{b.BootID, b.Run} }

// beginning returns when the run of a batch began by the wall clock of its host, in ns.
func beginning(b *schema.Batch) int64 { return b.Wall(schema.KTime(b.Run)).UnixNano() }

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
		if _, known := o.runs[runOf(b)]; !known {
			o.runs[run{strings.Clone(b.BootID), b.Run}] = beginning(b)
		}
		all.events += uint64(b.Events)
	}
	return all, nil
}

func newOrigin(subject string) *origin {
	o := &origin{runs: map[run]int64{}}
	if parts := strings.SplitN(subject, ".", 5); len(parts) == 5 {
		o.tokens = parts[4]
	}
	parts := strings.Split(o.tokens, ".")
	o.cluster, o.host, o.kind = parts[0], parts[min(1, len(parts)-1)], parts[len(parts)-1]
	return o
}

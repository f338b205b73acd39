package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/cmd/internal/undisturbed"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

// rest lets the fleet heal, the simulators end, and the consumers fold what is left.
func (f *fleet) rest(ctx context.Context) error {
	f.say("rest")
	for _, list := range [][]*cluster.Process{f.nodes, f.consumers, f.simulators} {
		for _, p := range list {
			p.Signal(syscall.SIGCONT)
			if !p.Running() {
				return fmt.Errorf("%s has ended by itself: %w", p.Name, p.Err())
			}
		}
	}
	if err := cluster.Until(ctx, 2*time.Minute, func() error { return f.healthy(ctx) }); err != nil {
		return err
	}
	for _, p := range f.simulators {
		if err := f.finish(ctx, p); err != nil {
			return err
		}
	}
	f.say("everything is published")
	if err := cluster.Until(ctx, 3*time.Minute, func() error { return f.folded(ctx) }); err != nil {
		return err
	}
	for _, p := range f.consumers {
		if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
			return err
		}
	}
	f.say("everything is folded and committed")
	return nil
}

// finish ends a simulator when everything is published. One that was only just started again may still be reading its log
// then: it is started once more.
func (f *fleet) finish(ctx context.Context, p *cluster.Process) error {
	for try := 1; ; try++ {
		if err := p.End(syscall.SIGINT, 2*time.Minute); err != nil {
			return err
		}
		if p.Err() == nil {
			return nil
		}
		if try == 3 {
			return fmt.Errorf("%s: %w: not everything was published", p.Name, p.Err())
		}
		if err := f.startAgain(ctx, p); err != nil {
			return err
		}
		f.pause(ctx, time.Duration(try)*30*time.Second)
	}
}

// healthy is nil when every shard's stream has a leader that answers.
func (f *fleet) healthy(ctx context.Context) error {
	for shard := range f.shards {
		if _, err := f.js.Stream(ctx, schema.StreamName(shard)); err != nil {
			return fmt.Errorf("stream of shard %d: %w", shard, err)
		}
	}
	return nil
}

// folded is nil when the committed state of every fold and shard goes to the end of its stream.
func (f *fleet) folded(ctx context.Context) error {
	for shard := range f.shards {
		if err := undisturbed.Folded(ctx, f.js, shard); err != nil {
			return err
		}
	}
	return nil
}

// verify compares streams with the simulators' logs, and states with an undisturbed reader's.
func (f *fleet) verify(ctx context.Context) error {
	var faults []error
	batches, err := f.verifyStreams(ctx)
	if err != nil {
		faults = append(faults, err)
	}
	equal, bytesOfStates := 0, 0
	for shard := range f.shards {
		for _, name := range slices.Sorted(maps.Keys(undisturbed.Folds)) {
			n, err := f.verifyState(ctx, name, shard)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			equal++
			bytesOfStates += n
		}
	}
	f.say("%d batches of the simulators are in the streams, in order; %d of %d states equal those of an undisturbed run (%d bytes)",
		batches, equal, f.shards*len(undisturbed.Folds), bytesOfStates)
	if rebuilt := f.summary()["saved state cannot be used"]; rebuilt > 0 {
		faults = append(faults, fmt.Errorf("%d saved states had to be rebuilt: see the consumers' logs in %s", rebuilt, f.dir))
	}
	return errors.Join(faults...)
}

func (f *fleet) verifyState(ctx context.Context, name string, shard int) (int, error) {
	saved, err := consumer.Saved(ctx, f.js, name, shard)
	if err != nil {
		return 0, err
	}
	fold := undisturbed.Folds[name]()
	reader := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, f.js, fold, slog.New(slog.DiscardHandler))
	want, err := undisturbed.State(ctx, reader, fold, saved.Sequence)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(saved.State, want) {
		path := filepath.Join(f.dir, fmt.Sprintf("%s-%d.state", name, shard))
		return 0, errors.Join(
			fmt.Errorf("%s of shard %d: the committed state is not that of an undisturbed run: %s and %[3]s.undisturbed", name, shard, path),
			os.WriteFile(path, saved.State, 0o644), os.WriteFile(path+".undisturbed", want, 0o644))
	}
	return len(want), nil
}

func sum(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64()
}

// origin is where seq counts.
type origin struct {
	cluster, host, boot string
	run                 uint64
	kind                schema.Kind
}

// verifyStreams checks that each shard's stream holds what was logged for its hosts, unchanged and in order, and nothing else.
func (f *fleet) verifyStreams(ctx context.Context) (batches int, err error) {
	logged := map[origin][]uint64{} // by seq - 1, the sum of the batch
	decoder := schema.NewDecoder()
	var b schema.Batch
	for i := range simulators {
		for e, err := range simulate.ReadLog(f.logOf(i)) {
			if err != nil {
				return 0, err
			}
			if err := decoder.Decode(e.Data, &b); err != nil {
				return 0, fmt.Errorf("log of %s: %w", e.Host, err)
			}
			at := origin{b.Cluster, b.Host, b.BootID, b.Run, b.Kind}
			if uint64(len(logged[at]))+1 != b.Seq {
				return 0, fmt.Errorf("log of %s: seq %d of %s after %d", e.Host, b.Seq, b.Kind, len(logged[at]))
			}
			logged[at] = append(logged[at], sum(e.Data))
			batches++
		}
	}
	stored := map[origin]int{}
	for shard := range f.shards {
		if err := f.eachMessage(ctx, shard, func(data []byte) error {
			if err := decoder.Decode(data, &b); err != nil {
				return err
			}
			at := origin{b.Cluster, b.Host, b.BootID, b.Run, b.Kind}
			want := logged[at]
			switch {
			case schema.Shard(b.Cluster, b.Host, f.shards) != shard:
				return fmt.Errorf("shard %d holds a batch of %s", shard, b.Host)
			case b.Seq > uint64(len(want)) || want[b.Seq-1] != sum(data):
				return fmt.Errorf("seq %d of %s of %s is not what was logged", b.Seq, b.Kind, b.Host)
			case b.Seq > uint64(stored[at])+1:
				return fmt.Errorf("seq %d of %s of %s comes after %d: lost", b.Seq, b.Kind, b.Host, stored[at])
			}
			stored[at] = max(stored[at], int(b.Seq))
			return nil
		}); err != nil {
			return batches, fmt.Errorf("stream of shard %d: %w", shard, err)
		}
	}
	for at, sums := range logged {
		if stored[at] != len(sums) {
			return batches, fmt.Errorf("%s of %s: %d of %d batches are stored", at.kind, at.host, stored[at], len(sums))
		}
	}
	return batches, nil
}

func (f *fleet) eachMessage(ctx context.Context, shard int, see func(data []byte) error) error {
	jsStream, err := f.js.Stream(ctx, schema.StreamName(shard))
	if err != nil {
		return err
	}
	if first := jsStream.CachedInfo().State.FirstSeq; first > 1 {
		return fmt.Errorf("it has let go of its beginning, up to %d: nothing can be compared", first)
	}
	left := jsStream.CachedInfo().State.Msgs
	if left == 0 {
		return nil
	}
	ordered, err := f.js.OrderedConsumer(ctx, schema.StreamName(shard), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := ordered.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		if err := see(m.Data()); err != nil {
			return err
		}
	}
	return nil
}

// summary counts what was done and what the consumers say of it.
func (f *fleet) summary() map[string]int {
	for _, what := range slices.Sorted(maps.Keys(f.did)) {
		f.say("%4d × %s", f.did[what], what)
	}
	if took := f.failovers(); len(took) > 0 {
		f.say("from kill -9 of a consumer until its shard was folded again: median %.1f s, 99th percentile %.1f s, worst %.1f s, of %d",
			took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds(), took[len(took)-1].Seconds(), len(took))
	}
	logs, _ := filepath.Glob(filepath.Join(f.dir, "*.log"))
	counts := map[string]int{}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, line := range []string{"shard is owned", "lease was lost", "checkpoint was refused", "checkpoint was not written", "saved state cannot be used", "batches are missing", "stream was written anew", "message came again"} {
			counts[line] += strings.Count(string(text), line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		f.say("%4d × the consumers said %q", counts[line], line)
	}
	return counts
}

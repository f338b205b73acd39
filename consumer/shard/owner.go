package shard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// errHandOver ends an ownership with a checkpoint: another instance should own the shard.
var errHandOver = errors.New("the shard is handed over")

// owner is one shard while this instance holds its lease: it claims the shard, restores its state, folds and commits.
type owner struct {
	checkpointer
	shard     int
	shards    int // of all generations
	topology  schema.Topology
	created   time.Time // of the bus
	leases    *leases
	opts      *Options
	revision  uint64 // of the lease; keep's while it runs
	rebuild   bool   // replace a state that a newer program saved
	restoring chan struct{}

	// the shard is of an older generation: the ownership ends when it is folded to its end
	closed   atomic.Bool
	progress func(eventKind)         // tells the Group
	stop     context.CancelCauseFunc // ends run

	waitsFor int  // shard of the generation before that is not folded to its end, or noShard
	damaged  bool // a state of the generation before is unusable, so its shards must be owned again

	epoch  uint64                 // of the claim; set before loaded
	loaded atomic.Pointer[Reader] // nil until the state is restored
}

// run returns when ctx ends or the shard is lost, and how the ownership ended. Then this instance does not own the
// shard.
func (o *owner) run(ctx context.Context) eventKind {
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() {
		if err := o.leases.keep(keeping, o.shard, &o.revision); err != nil {
			o.stop(err)
		}
	})
	done, err := o.work(ctx)
	stopKeeping()
	keeper.Wait()
	end := released
	if done {
		end = foldedAll
	}
	switch {
	case errors.Is(context.Cause(ctx), errLeaseLost):
		o.counters.LeasesLost.Add(1)
		o.log.Warn("lease lost", "err", "another instance holds it, or NATS did not answer in time")
		return end // the key is another instance's
	case errors.Is(err, errFenced): // reported where it happened
	case isNewer(err):
		end = foundNewer
		o.counters.Newer.Add(1)
		o.log.Warn("a newer program saved the state; shard left to a newer instance", "err", err)
	case errors.Is(err, errNotDrained):
		end = mustWait
		o.log.Debug("shard waits for the generation before", "err", err)
	case err != nil && ctx.Err() == nil:
		o.log.Warn("shard failed; retrying", "err", err)
	}
	if o.reader != nil {
		o.log.Info("shard released", "seq", o.manifest.Sequence, "applied", o.reader.Applied())
	}
	o.leases.release(context.WithoutCancel(ctx), o.shard, o.revision)
	return end
}

// work claims the shard, restores its state, and folds until ctx ends. done means that the shard is closed and folded
// to its end.
func (o *owner) work(ctx context.Context) (done bool, err error) {
	if o.manifest, err = o.store.claim(ctx, o.leases.instance, o.rebuild); err != nil {
		return false, err
	}
	o.progress(claimed)
	if o.reader, err = o.restore(ctx); err != nil {
		return false, err
	}
	o.begin()
	o.epoch = o.manifest.Epoch
	o.loaded.Store(&o.reader)
	o.counters.Claims.Add(1)
	o.progress(restored)
	o.log.Info("shard acquired", "epoch", o.manifest.Epoch, "seq", o.manifest.Sequence, "bytes", o.manifest.bytes())

	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	ended := make(chan error, 1)
	go func() { ended <- o.reader.Run(reading) }()
	tick := time.NewTicker(min(o.every, o.opts.Retry))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if ctx.Err() != nil {
				continue // the reader ends
			}
			done, err := o.step(ctx)
			if !done && !errors.Is(err, errFenced) {
				continue
			}
			stopReading()
			<-ended
			if done {
				err = o.checkpoint(ctx)
			}
			return done && err == nil, err
		case err := <-ended:
			if err != nil || errors.Is(context.Cause(ctx), errLeaseLost) {
				return false, err
			}
			return false, o.lastCheckpoint(context.WithoutCancel(ctx))
		}
	}
}

// step commits if it is time, and reports whether a closed shard is folded to its end.
func (o *owner) step(ctx context.Context) (done bool, err error) {
	err = o.checkpointIfDue(ctx)
	if err == nil && o.closed.Load() {
		done, _, err = drained(ctx, o.store.js, o.shard, o.reader.Position())
	}
	return done, err
}

// restore makes a reader from the newest checkpoint. Without one the reader inherits. A damaged state is rebuilt in the
// same way, and then from the stream.
func (o *owner) restore(ctx context.Context) (Reader, error) {
	reader := o.newReader()
	var lost error // why the saved state is not used
	switch {
	case o.manifest.saved():
		state, err := o.store.load(ctx, &o.manifest, o.opts.rebuildAfter(o.leases.ttl))
		if err != nil && !errors.Is(err, errDamaged) {
			return nil, err
		}
		if err == nil {
			err = reader.Restore(state, nil)
		}
		if isNewer(err) && !o.rebuild {
			return nil, err
		}
		if err == nil {
			reader.Resume(o.manifest.Position)
			return reader, nil
		}
		lost = err
		reader = o.newReader()
	case o.rebuild:
		lost = snapshot.ErrVersion
	}
	has, err := o.inherit(ctx, reader)
	tooNew := o.rebuild && isNewer(err)
	// neither state is usable
	if err != nil && lost != nil && (errors.Is(err, errDamaged) || tooNew && o.manifest.saved()) {
		lost = errors.Join(lost, err)
		reader = o.newReader()
	} else if err != nil {
		o.damaged = errors.Is(err, errDamaged) || tooNew
		return nil, err
	}
	o.unsaved = has // even if it is empty: the shards that inherit from this one wait for its checkpoint
	if lost != nil {
		o.unsaved = true
		o.counters.Rebuilt.Add(1)
		o.log.Warn("checkpoint unusable; rebuilding from the stream", "err", lost)
	}
	return reader, nil
}

func (o *owner) newReader() Reader {
	return o.opts.NewReader(o.shard, o.shards, o.leases.instance, o.log)
}

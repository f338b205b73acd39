package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// owned is one shard while this instance owns it: claimed, loaded, folded, committed.
type owned struct {
	shard    int
	topology schema.Topology
	js       jetstream.JetStream
	leases   *leases
	every    time.Duration // between checkpoints
	pull     int
	newFold  func() Stateful
	log      *slog.Logger
	counters *ownerCounters

	revision uint64 // of the lease; keep's while it runs
	store    checkpoints
	manifest manifest
	state    []byte // of the checkpoint under way; kept to be used again
	failure  error  // of the last checkpoint, which is made again at retry
	retry    time.Time
	unsaved  bool // the state is not what the manifest says, although nothing was folded
	cost     time.Duration
	saved    atomic.Int64 // bytes of the last checkpoint

	leaving bool // it is given to another; the Consumer's

	born       time.Time     // of the topology; the Consumer's
	inheriting chan struct{} // holds one while a shard of this instance inherits
	waitsFor   int           // shard of the generation before that is not folded to its end, or noShard; valid when ended is closed

	closed  atomic.Bool // the shard is of an older generation: it ends when it is folded to its end
	done    bool        // it was; valid when ended is closed
	rebuild bool        // a state of a newer program is not waited for
	newer   bool        // the state is of a newer program; valid when ended is closed
	again   bool        // the state of a shard that was finished is damaged: it must be owned again; valid when ended is closed

	stop  context.CancelCauseFunc
	ended chan struct{}

	mu      sync.Mutex
	reader  *Reader  // nil until the state is loaded
	fold    Stateful // the reader's
	written time.Time
}

// OwnerKey is the metadata of a JetStream consumer that says which instance reads a shard as its owner. Readers that own
// nothing have none.
const OwnerKey = "gputap_owner"

// errHandOver ends an ownership with a checkpoint: another instance should have the shard, or this one stops.
var errHandOver = errors.New("shard is handed over")

// run returns when ctx ends or the shard is lost, and then owns it no more.
func (o *owned) run(ctx context.Context) {
	defer close(o.ended)
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() {
		if err := o.leases.keep(keeping, o.shard, &o.revision, func() {}); err != nil {
			o.stop(err)
		}
	})
	err := o.work(ctx)
	stopKeeping()
	keeper.Wait()
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errLeaseLost):
		o.counters.leasesLost.Add(1)
		o.log.Warn("lease was lost: the shard is another's")
		return // the key is not ours
	case errors.Is(err, errFenced):
	case isNewer(err):
		o.newer = true
		o.counters.newer.Add(1)
		o.log.Warn("saved state is left to a newer instance", "err", err)
	case errors.Is(err, errNotDrained):
		o.log.Debug("shard must wait", "err", err)
	case err != nil && ctx.Err() == nil:
		o.log.Warn("shard is given up and tried again", "err", err)
	}
	if o.reader != nil {
		stats := o.reader.Stats()
		o.log.Info("shard is given away", "seq", o.manifest.Sequence, "applied", o.reader.Applied(), "batches", stats.Batches,
			"duplicates", stats.Duplicates)
	}
	o.leases.release(context.WithoutCancel(ctx), o.shard, o.revision)
}

// work claims the shard, takes its state up, and folds until ctx ends.
func (o *owned) work(ctx context.Context) (err error) {
	if o.manifest, err = o.store.claim(ctx, o.leases.instance, o.rebuild); err != nil {
		return err
	}
	reader, fold, err := o.takeUp(ctx)
	if err != nil {
		return err
	}
	written := time.Now()
	if before := o.manifest.Written; o.manifest.saved() && before.Before(written) { // another's clock may be ahead
		written = before
	}
	o.saved.Store(int64(o.manifest.bytes()))
	o.mu.Lock()
	o.reader, o.fold, o.written = reader, fold, written
	o.mu.Unlock()
	o.counters.claims.Add(1)
	o.log.Info("shard is owned", "epoch", o.manifest.Epoch, "seq", o.manifest.Sequence, "bytes", o.manifest.bytes(),
		"batches", reader.Stats().Batches, "duplicates", reader.Stats().Duplicates)

	_, folded := reader.watch(reader.Applied() + 1)
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	ended := make(chan error, 1)
	go func() { ended <- reader.Run(reading) }()
	tick := time.NewTicker(min(o.every, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-folded:
			folded = nil
			o.log.Info("folding has begun", "seq", reader.Applied())
		case <-tick.C:
			if ctx.Err() != nil {
				continue // the reader ends
			}
			err := o.checkpointDue(ctx)
			if err == nil && o.closed.Load() {
				o.done, _, err = reader.drained(ctx, o.shard, reader.position())
			}
			if !o.done && !errors.Is(err, errFenced) {
				continue
			}
			stopReading()
			<-ended
			if o.done {
				err = o.checkpoint(ctx)
				o.done = err == nil
			}
			return err
		case err := <-ended:
			if err != nil || errors.Is(context.Cause(ctx), errLeaseLost) {
				return err
			}
			return o.lastCheckpoint(context.WithoutCancel(ctx))
		}
	}
}

// takeUp makes a reader and fold of the newest checkpoint. What has none inherits; a damaged state is built anew like that, and from
// what the stream still holds.
func (o *owned) takeUp(ctx context.Context) (*Reader, Stateful, error) {
	reader, fold := o.anew()
	var lost error // why the state that was saved is not used
	switch {
	case o.manifest.saved():
		state, err := o.store.load(ctx, &o.manifest, waitForNewer*o.leases.ttl)
		if err != nil && !errors.Is(err, errDamaged) {
			return nil, nil, err
		}
		if err == nil {
			err = reader.restore(state, fold, nil)
		}
		if isNewer(err) && !o.rebuild {
			return nil, nil, err
		}
		if err == nil {
			reader.resume(&o.manifest)
			return reader, fold, nil
		}
		lost = err
		reader, fold = o.anew()
	case o.rebuild:
		lost = errNewer
	}
	has, err := o.inherit(ctx, reader, fold)
	tooNew := o.rebuild && isNewer(err)
	if err != nil && lost != nil && (errors.Is(err, errDamaged) || tooNew && o.manifest.saved()) { // neither is left
		lost = errors.Join(lost, err)
		reader, fold = o.anew()
	} else if err != nil {
		o.again = errors.Is(err, errDamaged) || tooNew
		return nil, nil, err
	}
	o.unsaved = has // blank too: whoever inherits from this shard waits for it
	if lost != nil {
		o.rebuilt(lost)
	}
	return reader, fold, nil
}

func (o *owned) rebuilt(why error) {
	o.unsaved = true
	o.counters.rebuilt.Add(1)
	o.log.Warn("saved state cannot be used: it is rebuilt from what the stream still holds", "err", why)
}

func (o *owned) anew() (*Reader, Stateful) {
	fold := o.newFold()
	reader := newReader(ReaderOptions{Shard: o.shard, PullMaxBytes: o.pull}, o.js, fold, o.log)
	reader.owner = o.leases.instance
	return reader, fold
}

const mostCost = 3 * time.Second

// checkpointDue commits when it is time and something was folded. A state that takes long to write is written less
// often: it may cost a twentieth of the time, be it written or not. Where the bus is away it is not even copied.
func (o *owned) checkpointDue(ctx context.Context) error {
	o.mu.Lock()
	written := o.written
	o.mu.Unlock()
	if time.Now().Before(o.retry) {
		return o.failure
	}
	if !o.unsaved && (time.Since(written) < max(o.every, 20*o.cost) || o.reader.Applied() == o.manifest.Sequence) {
		return nil
	}
	if !o.js.Conn().IsConnected() {
		return errAway
	}
	return o.checkpoint(ctx)
}

// checkpoint commits what was folded. Folding waits while the state is copied and goes on while it is written.
func (o *owned) checkpoint(ctx context.Context) error {
	next := o.manifest
	var err error
	o.state, err = o.reader.checkpoint(o.state[:0], o.fold, &next)
	making := min(next.copying, mostCost)
	if err != nil {
		return o.failed(err, max(o.every, 20*making), o.log.Error, "state cannot be saved")
	}
	if !o.unsaved && next.Sequence == o.manifest.Sequence && next.Created.Equal(o.manifest.Created) && next.Stored.Equal(o.manifest.Stored) {
		return nil
	}
	err = o.store.commit(ctx, &o.manifest, next, o.state)
	o.cost = min(making+o.store.writing, mostCost) // not the wait for a bus that is away
	if errors.Is(err, errFenced) {
		o.counters.fenced.Add(1)
		return o.failed(err, 0, o.log.Warn, "checkpoint was refused, since another instance claimed the shard: the state is dropped here")
	}
	if err != nil {
		return o.failed(err, 20*o.cost, o.log.Warn, "checkpoint was not written")
	}
	if o.failure != nil {
		o.log.Info("checkpoints are written again")
	}
	o.failure, o.unsaved = nil, false
	o.saved.Store(int64(len(o.state)))
	o.counters.commits.Add(1)
	o.mu.Lock()
	o.written = time.Now()
	o.mu.Unlock()
	return nil
}

// failed puts the next checkpoint off, and says why if that is new.
func (o *owned) failed(err error, wait time.Duration, say func(string, ...any), what string) error {
	o.counters.failed.Add(1)
	if o.failure == nil || o.failure.Error() != err.Error() {
		say(what, "err", err)
	}
	o.failure, o.retry = err, time.Now().Add(wait)
	return err
}

// lastCheckpoint is what whoever waits for the shard waits for: as long as the bus takes one part of it after the other.
func (o *owned) lastCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(stateTimeout, cancel)
	defer patience.Stop()
	o.store.progress = func() { patience.Reset(stateTimeout) }
	return o.checkpoint(ctx)
}

// checkpoint saves the state and says up to where it goes. It waits for the step under way.
func (r *Reader) checkpoint(to []byte, fold Stateful, m *manifest) ([]byte, error) {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	start := time.Now()
	defer func() { m.copying = time.Since(start) }()
	m.Sequence, m.Stored, m.Created = r.Applied(), r.place.stored, r.place.created
	return r.save(to, fold)
}

// State is the reader's state and its fold's as a checkpoint holds them. It waits for the step under way.
func (r *Reader) State(fold Stateful) ([]byte, error) {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	return r.save(nil, fold)
}

// resume makes the first fetch go on behind a checkpoint, if the stream is still the same.
func (r *Reader) resume(m *manifest) {
	r.place.whole, r.place.stored, r.place.created = true, m.Stored, m.Created
	r.place.begun = !m.Created.IsZero() // what was inherited may be saved before anything is read
	r.setApplied(m.Sequence)
}

// view is what an owned shard shows.
func (o *owned) view() (reader *Reader, fold Stateful, written time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reader, o.fold, o.written
}

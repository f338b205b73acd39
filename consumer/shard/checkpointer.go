package shard

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/snapshot"
)

// mostCost bounds the measured cost of a checkpoint, so that a slow one does not stop checkpoints for long.
const mostCost = 3 * time.Second

// errUnreachable means that the connection to NATS is interrupted.
var errUnreachable = errors.New("NATS is unreachable")

// checkpointer commits the state of a reader now and then.
type checkpointer struct {
	store    store
	reader   Reader
	every    time.Duration // least time between checkpoints
	log      *slog.Logger
	counters *Counters

	manifest manifest
	buffer   snapshot.Writer // reused for each checkpoint
	failure  error           // of the last checkpoint; the next try is at retry
	retry    time.Time
	unsaved  bool // the state differs from the manifest's although nothing was folded
	cost     time.Duration

	written atomic.Pointer[time.Time] // when a checkpoint last had all that was folded; read by scrapes
	bytes   atomic.Int64              // of the last checkpoint; read by scrapes
}

// begin takes note of the checkpoint that the state comes from.
func (c *checkpointer) begin() {
	written := time.Now()
	if before := c.manifest.Written; c.manifest.saved() && before.Before(written) { // another host's clock may be ahead
		written = before
	}
	c.written.Store(&written)
	c.bytes.Store(int64(c.manifest.bytes()))
}

// checkpointIfDue commits if something was folded and it is time. Checkpoints, written or failed, may cost a twentieth
// of the time: an expensive one is written less often. While NATS is unreachable the state is not copied.
func (c *checkpointer) checkpointIfDue(ctx context.Context) error {
	if time.Now().Before(c.retry) {
		return c.failure
	}
	if !c.unsaved && c.reader.Applied() == c.manifest.Sequence {
		now := time.Now() // a shard without messages has no old checkpoint
		c.written.Store(&now)
		return nil
	}
	if !c.unsaved && time.Since(*c.written.Load()) < max(c.every, 20*c.cost) {
		return nil
	}
	if !c.store.js.Conn().IsConnected() {
		return errUnreachable
	}
	return c.checkpoint(ctx)
}

// checkpoint commits the current state. Folding waits while the state is copied, and goes on while it is written.
func (c *checkpointer) checkpoint(ctx context.Context) error {
	next := c.manifest
	c.buffer.Reset()
	at, copying, err := c.reader.Save(&c.buffer)
	copying = min(copying, mostCost)
	if err != nil {
		return c.failed(err, max(c.every, 20*copying), slog.LevelError, "checkpoint failed")
	}
	if !c.unsaved && samePosition(at, c.manifest.Position) {
		return nil
	}
	next.Position = at
	err = c.store.commit(ctx, &c.manifest, next, c.buffer.Data())
	c.cost = min(copying+c.store.writing, mostCost) // without the wait for an unreachable NATS
	if errors.Is(err, errFenced) {
		c.counters.Fenced.Add(1)
		return c.failed(err, 0, slog.LevelWarn, "checkpoint fenced")
	}
	if err != nil {
		return c.failed(err, 20*c.cost, slog.LevelWarn, "checkpoint failed")
	}
	if c.failure != nil {
		c.log.Info("checkpoints succeed again")
	}
	c.failure, c.unsaved = nil, false
	c.bytes.Store(int64(len(c.buffer.Data())))
	now := time.Now()
	c.written.Store(&now)
	c.counters.Commits.Add(1)
	return nil
}

func samePosition(a, b bus.Position) bool {
	return a.Sequence == b.Sequence && a.Created.Equal(b.Created) && a.Stored.Equal(b.Stored)
}

// failed postpones the next checkpoint, and logs the error if it is another than the last one.
func (c *checkpointer) failed(err error, wait time.Duration, level slog.Level, msg string) error {
	c.counters.Failed.Add(1)
	if c.failure == nil || c.failure.Error() != err.Error() {
		c.log.Log(context.Background(), level, msg, "err", err)
	}
	c.failure, c.retry = err, time.Now().Add(wait)
	return err
}

// lastCheckpoint commits at the end of an ownership. The next owner waits for it, so it gives up when NATS stores no
// part for stateTimeout.
func (c *checkpointer) lastCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(stateTimeout, cancel)
	defer patience.Stop()
	c.store.progress = func() { patience.Reset(stateTimeout) }
	return c.checkpoint(ctx)
}

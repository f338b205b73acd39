package consumer

import (
	"fmt"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Fold is one consumer's state and how a batch changes it. Apply is called by one goroutine at a time, in seq order per
// host, producer run and kind. Apply must not keep b: its columns are reused for the next batch. Heartbeats
// (schema.KindHost) come even if Kinds does not list them: they carry the losses of the host.
//
// A fold may also have the method
//
//	Lost(cluster, host, boot string, batches uint64)
//
// which the same goroutine calls for batches with events of its kinds that the fold will never see: they were lost,
// came before the reader's start, or were refused by Apply. A fold may also have the method
//
//	Forget(cluster, host string)
//
// which the same goroutine calls between two batches to remove a host. A host goes when it was silent for a day while
// others were not. If there are too many hosts, the one that was silent for longest goes. Time here is when NATS
// stored the batches, so each reader of a stream calls Forget at the same message, for several hosts in order. If a
// host comes back in the same run of its producer, the reader reports a lost batch.
//
// A fold may also have the method
//
//	Tick(h *schema.Header, through schema.KTime)
//
// which the same goroutine calls between two batches when the fold has seen every event of its kinds on a host up to
// that time: heartbeats carry the last seq of each kind, and all of them were read. h identifies the host, the boot and
// the clock; its other fields mean nothing. In a boot, through only grows, usually by ten seconds.
type Fold interface {
	Name() string // letters, digits, - and _: instances of one name share shards and states
	Kinds() []schema.Kind
	Apply(b *schema.Batch) error
}

// Section is the state of one host in one fold. The section without a host contains the state for all hosts.
type Section = snapshot.Section

// Stateful is a fold whose state can be saved, and restored by another instance. Sections are canonical: the same state
// gives the same bytes, sorted by cluster and host, whatever events led to it.
//
// Snapshot calls yield for each section and stops at its first error; Data is valid until yield returns. Restore is
// called on a new fold for every section of one snapshot, in order. It refuses a section of a newer program
// with snapshot.ErrVersion and a damaged one with snapshot.ErrDamaged; after an error the fold is useless.
type Stateful interface {
	Fold
	Snapshot(yield func(Section) error) error
	Restore(Section) error
}

type lossAware interface {
	Lost(cluster, host, boot string, batches uint64)
}

type ticking interface {
	Tick(h *schema.Header, through schema.KTime)
}

type forgetful interface {
	Forget(cluster, host string)
}

// guard turns a panic of a fold into an error: it must not end the consumer.
func guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("fold panicked: %v", p)
		}
	}()
	return call()
}

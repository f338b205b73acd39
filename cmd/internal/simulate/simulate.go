package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/app"
	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// Options of a simulation.
type Options struct {
	Conns    []*nats.Conn // hosts are spread over them; at least one
	Cluster  string
	Hosts    int
	Rate     float64       // events a second of all hosts together
	Duration time.Duration // length of the simulation in event time; 0: until the context ends
	Start    time.Time     // time of the first event; zero: now. Batches that are already due are made at once.
	Seed     uint64
	Profile  string        // file of a recording; "": the built-in profile
	BatchAge time.Duration // longest time span of a batch, at least 1 ms
	Lose     float64       // fraction of the batches that is withheld, from 0 to below 1
	Restart  bool          // a new run of the producer in each life
	Jobs     int           // jobs of 8 ranks each, on the first hosts, instead of the recording
	SlowRank float64       // by how much rank 3 of the first job computes longer, such as 0.3
	LeakRank int64         // bytes that rank 5 of the first job allocates in a second and never frees
	LogPath  string        // "": no log
	Resume   bool          // continue the log LogPath: publish batches again that may not have been acked
	Drain    time.Duration // time to wait for the last acks
	Log      *slog.Logger
}

// Simulator is one simulation.
type Simulator struct {
	fleet  *fleet
	shards *shards
	log    *logWriter

	made, withheld, acked tally
	retries               atomic.Uint64

	deliveries sync.WaitGroup
	failing    atomic.Int64 // batches in flight whose last publish failed
	room       room

	due                   []atomic.Int64 // of each host: when its next batch is due, ns since the fleet's start
	began, stopped, ended atomic.Int64   // wall clock, ns; 0: not yet. stopped: no more batches are made
}

// New reads and prepares the profile, at about 100 ns per event.
func New(o Options) (*Simulator, error) {
	switch {
	case o.Hosts > maxHosts:
		return nil, fmt.Errorf("hosts: %d is more than %d", o.Hosts, maxHosts)
	case o.Rate > 1e12:
		return nil, fmt.Errorf("rate: %g events a second is not above 0 and at most 1e12", o.Rate)
	case o.Jobs*ranks > o.Hosts:
		return nil, fmt.Errorf("%s %d ranks: use at least as many hosts", app.Plural(uint64(o.Jobs), "job has",
			"jobs have"), o.Jobs*ranks)
	case len(o.Cluster) > 255:
		return nil, errors.New("cluster: the name is longer than 255 bytes")
	}
	from, err := openRecording(o.Profile)
	if err != nil {
		return nil, err
	}
	l, err := newLife(from, o.Rate/float64(o.Hosts), o.BatchAge)
	if err != nil {
		return nil, err
	}
	if uint64(o.Hosts)*2*uint64(l.ids)+firstPID >= 1<<32 {
		return nil, fmt.Errorf("%d hosts with %d processes and threads each: use fewer hosts or a shorter recording",
			o.Hosts, l.ids)
	}
	s := &Simulator{due: make([]atomic.Int64, o.Hosts), fleet: &fleet{Options: o, life: l}}
	s.room.freed.L = &s.room.mu
	return s, nil
}

// Run simulates until the Duration is over or ctx ends, and then waits for acks. It returns an error if the simulation
// could not continue. Call it once; Stats returns the result.
func (s *Simulator) Run(ctx context.Context) (err error) {
	o := &s.fleet.Options
	var connections []jetstream.JetStream
	for _, conn := range o.Conns {
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncTimeout(ackTimeout),
			jetstream.WithPublishAsyncMaxPending(o.Hosts*int(schema.NumKinds)))
		if err != nil {
			return err
		}
		connections = append(connections, js)
	}
	s.shards = &shards{js: connections[0]}
	if err := s.shards.read(ctx); err != nil {
		return err
	}
	switch {
	case o.LogPath != "" && o.Resume:
		s.log, err = s.resume(ctx, connections[0], o.LogPath)
	case o.LogPath != "":
		s.log, err = createLog(o.LogPath)
	}
	if err != nil {
		return err
	}
	if o.Start.IsZero() {
		o.Start = time.Now()
	}
	s.began.Store(time.Now().UnixNano())
	err = errors.Join(s.run(ctx, connections), s.log.close())
	s.ended.Store(time.Now().UnixNano())
	return err
}

func (s *Simulator) run(ctx context.Context, connections []jetstream.JetStream) error {
	making, stop := context.WithCancel(ctx)
	defer stop()
	if s.fleet.Duration > 0 {
		making, stop = context.WithTimeout(ctx, s.fleet.Duration+time.Second) // if it is late
		defer stop()
	}
	delivering, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	context.AfterFunc(making, func() {
		s.stopped.CompareAndSwap(0, time.Now().UnixNano())
		time.AfterFunc(s.fleet.Drain, func() { abort(nil) })
	})
	context.AfterFunc(delivering, stop)
	var hosts sync.WaitGroup
	for i := range s.fleet.Hosts {
		h, js := s.fleet.host(i), connections[i%len(connections)]
		hosts.Go(func() { s.play(making, delivering, h, js, abort) })
	}
	hosts.Wait()
	s.stopped.CompareAndSwap(0, time.Now().UnixNano())
	stop()
	s.deliveries.Wait()
	if err := context.Cause(delivering); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // the time for the last acks is over
}

// play makes the batches of a host when they are due, and has them delivered, until making ends.
func (s *Simulator) play(
	making, delivering context.Context, h *host, js jetstream.JetStream, abort context.CancelCauseFunc,
) {
	for making.Err() == nil {
		due, next, ok := h.next()
		if !ok {
			s.due[h.index].Store(math.MaxInt64)
			return
		}
		s.due[h.index].Store(int64(due))
		if early := time.Until(s.fleet.Start.Add(time.Duration(due))); early > 0 {
			eventbus.Sleep(making, early)
		}
		kind := next.batch.Kind
		if h.seqs[schema.KindHost] == 0 { // the ends of a run's first heartbeat apply to the run before it, too
			h.awaitAcks()
		}
		h.inFlight[kind].Lock()
		s.room.reserve(next.bytes)
		done := func() {
			s.room.release(next.bytes)
			h.inFlight[kind].Unlock()
		}
		if making.Err() != nil {
			done()
			return
		}
		b := h.make()
		if err := s.log.write(&h.header, kind, &b); err != nil {
			done()
			abort(err)
			return
		}
		s.made.add(&b)
		if b.withheld {
			s.withheld.add(&b)
			done()
			continue
		}
		d := delivery{Simulator: s, js: js, from: flow{h.header.Cluster, h.header.Host, kind}, data: b.data}
		d.send()
		s.deliveries.Go(func() {
			defer done()
			switch err := d.finish(delivering); {
			case err == nil:
				s.acked.add(&b)
			case delivering.Err() == nil:
				abort(err)
			}
		})
	}
}

// Stats are the figures of a simulation. Events are CUDA calls; a heartbeat is a batch without events.
type Stats struct {
	Hosts           int     `json:"hosts"`
	Seconds         float64 `json:"seconds"`
	AskedRate       float64 `json:"asked_events_per_second"`
	Rate            float64 `json:"events_per_second"` // acked, over the whole time
	Batches         uint64  `json:"batches"`           // made
	Events          uint64  `json:"events"`
	Bytes           uint64  `json:"bytes"`
	WithheldBatches uint64  `json:"withheld_batches"`
	WithheldEvents  uint64  `json:"withheld_events"`
	AckedBatches    uint64  `json:"acked_batches"`
	AckedEvents     uint64  `json:"acked_events"`
	AckedBytes      uint64  `json:"acked_bytes"`
	UnackedBatches  uint64  `json:"unacked_batches"`
	UnackedEvents   uint64  `json:"unacked_events"`
	Retries         uint64  `json:"retries"`
	Behind          float64 `json:"behind_seconds"` // age of the oldest batch that is due but not made
	KeptUp          bool    `json:"kept_up"`
}

// tally counts batches. Any goroutine may use it.
type tally struct{ batches, events, bytes atomic.Uint64 }

func (t *tally) add(b *batch) {
	t.batches.Add(1)
	t.events.Add(uint64(b.events))
	t.bytes.Add(uint64(len(b.data)))
}

// Stats returns the figures so far. Any goroutine may call it at any time.
func (s *Simulator) Stats() Stats {
	t := Stats{
		Hosts: s.fleet.Hosts, AskedRate: s.fleet.Rate, Retries: s.retries.Load(),
		AckedBatches: s.acked.batches.Load(), AckedEvents: s.acked.events.Load(), AckedBytes: s.acked.bytes.Load(),
		// loaded before those of all batches, so never more
		WithheldBatches: s.withheld.batches.Load(), WithheldEvents: s.withheld.events.Load(),
		Batches: s.made.batches.Load(), Events: s.made.events.Load(), Bytes: s.made.bytes.Load(),
	}
	t.UnackedBatches = t.Batches - t.AckedBatches - t.WithheldBatches
	t.UnackedEvents = t.Events - t.AckedEvents - t.WithheldEvents
	began := s.began.Load()
	if began == 0 {
		return t
	}
	now := time.Now().UnixNano()
	t.Seconds = max(time.Duration(cmp.Or(s.ended.Load(), now)-began).Seconds(), 1e-9)
	t.Rate = float64(t.AckedEvents) / t.Seconds
	elapsed := cmp.Or(s.stopped.Load(), now) - s.fleet.Start.UnixNano()
	for i := range s.due {
		t.Behind = max(t.Behind, time.Duration(elapsed-s.due[i].Load()).Seconds())
	}
	t.KeptUp = t.Behind < 1 // a second covers scheduling and a round trip
	return t
}

package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/schema"
)

// Options of a simulation. A zero value means the default.
type Options struct {
	Conns    []*nats.Conn  // hosts are spread over them; at least one
	Cluster  string        // sim
	Hosts    int           // 100
	Rate     float64       // events a second of all hosts together; 20,000
	Duration time.Duration // length of the simulation in event time; 0: until the context ends
	Start    time.Time     // time of the first event; now. Batches that are already due are made at once.
	Seed     uint64
	Profile  string        // file of a recording; "": the built-in profile
	BatchAge time.Duration // longest time span of a batch; 1 s
	Lose     float64       // fraction of the batches that is withheld, from 0 to below 1
	Restart  bool          // a new run of the producer in each life
	LogPath  string        // "": no log
	Resume   bool          // continue the log LogPath: publish batches again that may not have been acked
	Drain    time.Duration // time to wait for the last acks; 10 s

	// Topology returns the shards. It is called at the start, and again when a publish fails.
	Topology func(context.Context) (schema.Topology, error)
	Log      *slog.Logger
}

const (
	defaultHosts = 100
	defaultRate  = 20_000
	defaultAge   = time.Second
	defaultDrain = 10 * time.Second
	// overtime is the time that a late simulation continues after its Duration.
	overtime = time.Second
)

func (o *Options) complete() error {
	if o.Cluster == "" {
		o.Cluster = "sim"
	}
	if o.Hosts == 0 {
		o.Hosts = defaultHosts
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.BatchAge == 0 {
		o.BatchAge = defaultAge
	}
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(o.Conns) == 0 || o.Topology == nil:
		return errors.New("Options: a connection and a topology are required")
	case o.Hosts < 1 || o.Hosts > maxHosts:
		return fmt.Errorf("hosts: %d is not from 1 to %d", o.Hosts, maxHosts)
	case !(o.Rate > 0 && o.Rate <= 1e12):
		return fmt.Errorf("rate: %g events a second is not above 0 and at most 1e12", o.Rate)
	case !(o.Lose >= 0 && o.Lose < 1):
		return fmt.Errorf("lose: %g is not from 0 to below 1", o.Lose)
	case o.BatchAge < time.Millisecond || o.Duration < 0 || o.Drain < 0:
		return fmt.Errorf(
			"batch age %s must be at least 1 ms; duration %s and drain %s must not be negative", o.BatchAge, o.Duration,
			o.Drain,
		)
	case len(o.Cluster) > 255:
		return errors.New("cluster: the name is longer than 255 bytes")
	}
	return nil
}

// Simulator is one simulation.
type Simulator struct {
	options Options
	fleet   *fleet
	counts  counts
	workers []*worker
	began   atomic.Int64 // wall clock, ns; 0 before Run
	ended   atomic.Int64
}

// New reads and prepares the profile, at about 100 ns per event.
func New(o Options) (*Simulator, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	from, err := builtIn()
	if o.Profile != "" {
		from, err = openRecording(o.Profile)
	}
	if err != nil {
		return nil, err
	}
	l, err := newLife(from, o.Rate/float64(o.Hosts), o.BatchAge)
	if err != nil {
		return nil, err
	}
	if uint64(o.Hosts)*2*uint64(l.ids)+firstPID >= 1<<32 {
		return nil, fmt.Errorf(
			"%d hosts with %d processes and threads each: use fewer hosts or a shorter recording", o.Hosts, l.ids,
		)
	}
	return &Simulator{options: o, fleet: &fleet{
		life: l, cluster: o.Cluster, seed: o.Seed, hosts: o.Hosts, lose: o.Lose, restart: o.Restart,
		end: schema.KTime(o.Duration), stagger: min(schema.KTime(o.BatchAge), l.period),
	}}, nil
}

// Run simulates until the Duration is over or ctx ends, and then waits for acks. It returns an error if the simulation
// could not continue. Call it once; Stats returns the result.
func (s *Simulator) Run(ctx context.Context) error {
	o := &s.options
	places, err := newPlaces(ctx, o.Topology, o.Log)
	if err != nil {
		return err
	}
	var log *logWriter
	if o.LogPath != "" {
		open := func() (*logWriter, error) { return createLog(o.LogPath) }
		if o.Resume {
			open = func() (*logWriter, error) { return s.resume(ctx, o.LogPath) }
		}
		if log, err = open(); err != nil {
			return err
		}
	}
	s.fleet.start = o.Start
	if o.Start.IsZero() {
		s.fleet.start = time.Now()
	}
	s.began.Store(time.Now().UnixNano())
	err = errors.Join(s.run(ctx, places, log), log.close())
	s.ended.Store(time.Now().UnixNano())
	return err
}

func (s *Simulator) run(ctx context.Context, places *places, log *logWriter) error {
	making, stop := context.WithCancel(ctx)
	defer stop()
	if s.options.Duration > 0 {
		making, stop = context.WithTimeout(ctx, s.options.Duration+overtime)
		defer stop()
	}
	asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx))
	var asker, group sync.WaitGroup
	asker.Go(func() { places.run(asking) })
	defer func() {
		stopAsking()
		asker.Wait()
	}()
	conns := s.options.Conns
	for i := range conns {
		w := &worker{
			fleet: s.fleet, conn: conns[i], places: places, log: log, counts: &s.counts, note: s.options.Log,
			drain: s.options.Drain,
		}
		w.mostBytes = mostInFlight / len(conns)
		for k := i; k < s.options.Hosts; k += len(conns) {
			w.add(s.fleet.host(k))
		}
		s.workers = append(s.workers, w)
	}
	errs := make([]error, len(conns))
	s.counts.running.Store(true)
	for i, w := range s.workers {
		group.Go(func() {
			if errs[i] = w.run(making); errs[i] != nil {
				stop()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

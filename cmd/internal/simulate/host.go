package simulate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gputap/gputap/schema"
)

const (
	heartbeat     = schema.KTime(10 * time.Second)
	rankHeartbeat = schema.KTime(schema.RankWindow) // of a host with a rank
	// maxHosts address spaces of 47 bits fit in 64 bits.
	maxHosts    = 1 << 17
	addressBits = 47
	// Hosts divide the ids from firstPID on among themselves. Linux has 1 to 4,194,304.
	firstPID = 300
	pids     = 4_000_000
	// One of skewed hosts has a wrong wall clock, by at most mostOff.
	skewed  = 32
	mostOff = 10 * time.Minute
)

// fleet is what all hosts share.
type fleet struct {
	Options
	*life
	builders [schema.NumKinds]sync.Pool
}

// host makes the batches of one host in the order of their due times.
type host struct {
	fleet    *fleet
	life     *life // the fleet's, or that of one window of the rank
	rank     *rank // nil: the host replays the recording
	index    int
	header   schema.Header
	random   *rand.Rand
	uptime   schema.KTime // KTime at the fleet's start
	begins   schema.KTime // of this life, since the fleet's start
	nextBeat schema.KTime // since the fleet's start
	lives    uint64
	step     int
	seqs     [schema.NumKinds]uint64
	move     move
	inFlight [schema.NumKinds]sync.Mutex // held while a batch of the kind is not acked
}

// batch is one batch of a host.
type batch struct {
	data     []byte
	events   int
	withheld bool
}

func (f *fleet) host(i int) *host {
	h := &host{fleet: f, index: i, random: rand.New(rand.NewPCG(f.Seed, uint64(i)))}
	// The same for each seed: a host that is simulated again has booted later, so consumers end its earlier processes.
	uptime := rand.New(rand.NewPCG(0, uint64(i)))
	h.uptime = schema.KTime(time.Hour) + schema.KTime(uptime.Int64N(int64(30*24*time.Hour)))
	h.header = schema.Header{
		Cluster: f.Cluster, Host: fmt.Sprintf("sim-%04d", i), BootID: f.bootID(i),
		ClockOffset: f.Start.UnixNano() - int64(h.uptime),
	}
	if i%skewed == skewed/8 {
		h.header.ClockOffset += h.random.Int64N(int64(2*mostOff)) - int64(mostOff)
	}
	// Hosts start one after another within a batch age.
	first := min(schema.KTime(f.BatchAge), f.period) / schema.KTime(f.Hosts) * schema.KTime(i)
	h.header.Run = uint64(h.uptime + first)
	h.nextBeat = first
	h.move.Handle = uint64(i) << addressBits
	salt := rand.New(rand.NewPCG(f.Seed, maxHosts)).Uint64() << 28
	h.move.GPU = salt + uint64(i)*f.gpus // 12 digits are 48 bits, 28 of them for the number of the GPU
	h.life, h.rank = f.life, f.rank(i)
	h.begin(first)
	return h
}

// bootID returns a boot id that differs between simulations, because seqs and clocks start again.
func (f *fleet) bootID(i int) string {
	r := rand.New(rand.NewPCG(f.Seed^uint64(f.Start.UnixNano()), uint64(i)))
	return fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
}

// begin starts a life, or the next window of a rank.
func (h *host) begin(at schema.KTime) {
	if h.rank != nil {
		window := schema.KTime(h.fleet.BatchAge)
		for h.life = h.rank.life(at, window); len(h.life.steps) == 0; h.life = h.rank.life(at, window) {
			at += window
		}
	}
	h.begins, h.step = at, 0
	h.move.Time = h.uptime + at
	if h.rank != nil && h.lives > 0 {
		return // the process goes on
	}
	room := max(uint64(pids/h.fleet.Hosts), 2*uint64(h.fleet.ids)) / uint64(h.fleet.ids)
	h.move.PID = uint32(firstPID + (uint64(h.index)*room+h.lives%room)*uint64(h.fleet.ids))
	if h.fleet.Restart && h.lives > 0 {
		h.header.Run = uint64(h.move.Time)
		h.header.Lost = [schema.NumLosses]uint64{}
		h.seqs = [schema.NumKinds]uint64{}
		h.nextBeat = at
	}
}

// next returns the next batch of the life and its due time since the fleet's start, or false after the end.
func (h *host) next() (due schema.KTime, s *step, ok bool) {
	s = &h.life.steps[h.step]
	due = h.begins + s.due
	if h.nextBeat <= due {
		due, s = h.nextBeat, &h.fleet.beat
	}
	return due, s, h.fleet.Duration == 0 || due <= schema.KTime(h.fleet.Duration)
}

// make returns the next batch.
func (h *host) make() batch {
	_, s, _ := h.next()
	kind := s.batch.Kind
	h.seqs[kind]++
	h.header.Seq = h.seqs[kind]
	b := batch{events: s.batch.Events, data: h.encode(s.batch)}
	if kind == schema.KindHost {
		// so that heartbeats of hosts are spread over time
		interval := heartbeat
		if h.rank != nil {
			interval = rankHeartbeat
		}
		if h.nextBeat += interval; h.seqs[kind] == 1 && h.lives == 0 {
			h.nextBeat -= interval - interval/schema.KTime(h.fleet.Hosts)*schema.KTime(h.index+1)
		}
		return b
	}
	if h.fleet.Lose > 0 && h.random.Float64() < h.fleet.Lose && !s.ends {
		b.withheld = true
		h.header.Lost[schema.LossSpool] += uint64(b.events)
	}
	if h.step++; h.step == len(h.life.steps) {
		h.lives++
		h.begin(h.begins + h.life.period)
	}
	return b
}

// ends says in a heartbeat how far each kind is complete: up to the first call of the next batch, or up to now.
func (h *host) ends(list []schema.End) []schema.End {
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		through := min(h.uptime+h.nextBeat, h.move.Time+h.life.steps[h.step].first[kind])
		list = append(list, schema.End{Kind: kind, Seq: h.seqs[kind], Through: through})
	}
	return list
}

// awaitAcks waits until no batch is in flight.
func (h *host) awaitAcks() {
	for kind := range h.inFlight {
		h.inFlight[kind].Lock()
		h.inFlight[kind].Unlock() //nolint:staticcheck // an ack unlocks it
	}
}

// encode returns a batch of the life as one of this host.
func (h *host) encode(from *schema.Batch) []byte {
	pool := &h.fleet.builders[from.Kind]
	builder, _ := pool.Get().(*schema.Builder)
	if builder == nil {
		builder = schema.NewBuilder(from.Kind)
	}
	defer pool.Put(builder)
	builder.Reset()
	if from.Kind == schema.KindHost {
		builder.Ends = h.ends(builder.Ends[:0])
	}
	h.move.apply(from, builder)
	return bytes.Clone(builder.Encode(&h.header))
}

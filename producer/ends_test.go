package producer

import (
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// checkEnds expects no event of a call that returned before the time of an end in a batch behind that end, whatever the
// order of the messages. It returns the number of ends that had later batches with events of their kind.
func checkEnds(t *testing.T, messages [][]byte) (checked int) {
	t.Helper()
	type batch struct {
		seq    uint64
		events int
		first  schema.KTime // return of a call
	}
	var ends []schema.End
	batches := map[schema.Kind][]batch{}
	decoder := schema.NewDecoder()
	for _, data := range messages {
		var b schema.Batch
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, b.Ends...)
		made := batch{b.Seq, b.Events, ^schema.KTime(0)}
		for i := range b.Events {
			returned := schema.KTime(b.Time().At(i))
			if b.Kind != schema.KindLaunch { // which is recorded when it begins
				returned += schema.KTime(b.Duration().At(i))
			}
			made.first = min(made.first, returned)
		}
		batches[b.Kind] = append(batches[b.Kind], made)
	}
	for _, end := range ends {
		later := 0
		for _, b := range batches[end.Kind] {
			if b.seq > end.Seq && b.events > 0 {
				later++
				if b.first < end.Through {
					t.Errorf("%s batch %d has a call that returned at %d, but the end %d is complete through %d",
						end.Kind, b.seq, b.first, end.Seq, end.Through)
				}
			}
		}
		checked += min(later, 1)
	}
	return checked
}

// deliverAll returns what publishers that NATS always acks take from the spool.
func deliverAll(t *testing.T, s *spool) (messages [][]byte) {
	t.Helper()
	for kind := range s.queues {
		for s.waiting(schema.Kind(kind)) > 0 {
			e, err := s.next(t.Context(), schema.Kind(kind))
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, append([]byte{}, e.Data...))
			s.acked(schema.Kind(kind))
		}
	}
	return messages
}

// TestHeartbeatsSayHowFarEachKindIsComplete: batches and heartbeats close at random times. A record is read up to
// submitTime after its call returned.
func TestHeartbeatsSayHowFarEachKindIsComplete(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := newTestTranslator()
	var all [][]byte
	memory := bpf.MemoryRecord{Head: head(t, bpf.RecordMemory, "cuMemAlloc_v2"), Ptr: 1, Device: -1}
	launch := bpf.LaunchRecord{Head: head(t, bpf.RecordLaunch, "cuLaunchKernel")}
	for now := schema.KTime(1e9); now < 60e9; now += schema.KTime(random.Uint64N(40e6)) {
		r.begin(now)
		for range random.IntN(4) {
			returned := uint64(now) - random.Uint64N(uint64(submitTime))
			memory.Duration = random.Uint64N(1e9)
			memory.Time, launch.Time = returned-memory.Duration, returned
			r.handle(record(&memory))
			r.handle(record(&launch))
		}
		r.finish()
		switch random.IntN(4) {
		case 0:
			r.batches.closeDue(now)
		case 1:
			r.batches.heartbeat(nil, r.known, "", "", r.through)
		case 2:
			all = append(all, deliverAll(t, r.batches.spool)...)
		}
	}
	r.batches.closeAll()
	if n := checkEnds(t, append(all, deliverAll(t, r.batches.spool)...)); n < 1000 {
		t.Errorf("only %d ends had later events", n)
	}
}

// TestReadersReachTheEndOfALostBatch: the spool drops the last batch of launches after a heartbeat named it. The next
// heartbeat comes with an empty batch behind the lost one, and further heartbeats with none.
func TestReadersReachTheEndOfALostBatch(t *testing.T) {
	r := newTestTranslator()
	r.batches.spool.limit = 3000
	r.batches.open[schema.KindLaunch].AddLaunch(&schema.Launch{Time: 1})
	r.batches.heartbeat(nil, r.known, "", "", 10)
	r.batches.closeAll()
	push(r.batches.spool, schema.KindMemory, 2900, 1) // pushes out the launches and the heartbeat
	if n := r.batches.spool.waiting(schema.KindLaunch); n != 0 {
		t.Fatalf("%d batches of launches wait", n)
	}
	r.batches.spool.take(schema.KindMemory, 0)
	for i, want := range []struct{ seq, launches uint64 }{{2, 1}, {2, 0}} {
		r.batches.heartbeat(nil, r.known, "", "", 20)
		launches, seq := uint64(0), uint64(0)
		for _, data := range deliverAll(t, r.batches.spool) {
			var b schema.Batch
			if err := schema.NewDecoder().Decode(data, &b); err != nil {
				t.Fatal(err)
			}
			if b.Kind == schema.KindLaunch {
				launches++
				if b.Events != 0 || b.Seq != 2 {
					t.Errorf("batch %d of launches has %d events", b.Seq, b.Events)
				}
			}
			for _, end := range b.Ends {
				if end.Kind == schema.KindLaunch {
					seq = end.Seq
				}
			}
		}
		if launches != want.launches || seq != want.seq {
			t.Errorf("heartbeat %d: end of launches at %d, with %d batches; want %d, %d", i+1, seq, launches, want.seq,
				want.launches)
		}
	}
}

package outbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/gputap/gputap/schema"
)

// model knows which batches an outbox must return.
type model struct {
	t      *testing.T
	random *rand.Rand
	o      *Outbox
	dir    string
	kinds  [schema.NumKinds]kindModel
	runs   int
	power  int // power cuts that took something
	again  int // batches that came twice
}

type kindModel struct {
	pushed int          // batches 1 to pushed exist
	taken  map[int]bool // acked at least once
	gone   map[int]bool // may be gone: power was cut before they were synced
	stored map[int]spot // where batches were written in this run
	last   int          // acked in this run; 0: none
	run    map[int]int  // in which a batch was made
}

type spot struct {
	path string
	end  int64
}

var modelKinds = []schema.Kind{memory, launch, host}

// TestModel does what may happen in random order: appends, syncs, acks, restarts, crashes and power cuts. In each run
// batches come in order, byte for byte, those of a run behind all of the runs before, and every one that was not acked
// and must be there comes.
func TestModel(t *testing.T) {
	t.Parallel()
	randomModels(t, 4)
}

func randomModels(t *testing.T, seeds uint64) {
	t.Helper()
	var powers, repeats atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir()}
				for kind := range m.kinds {
					m.kinds[kind] = kindModel{taken: map[int]bool{}, gone: map[int]bool{}, run: map[int]int{}}
				}
				m.begin()
				for range 600 {
					m.step()
				}
				m.restart()
				m.all()
				powers.Add(int64(m.power))
				repeats.Add(int64(m.again))
			})
		}
	})
	if powers.Load() == 0 || repeats.Load() == 0 {
		t.Errorf("%d power cuts took something, %d batches came twice: the test proves nothing",
			powers.Load(), repeats.Load())
	}
}

func (m *model) begin() {
	opts := options(m.dir)
	opts.SegmentBytes = 8_000
	m.o = open(m.t, opts)
	m.runs++
	for kind := range m.kinds {
		m.kinds[kind].stored, m.kinds[kind].last = map[int]spot{}, 0
	}
}

func (m *model) step() {
	kind := modelKinds[m.random.IntN(len(modelKinds))]
	switch n := m.random.IntN(100); {
	case n < 50:
		m.push(kind)
	case n < 80:
		m.ack(kind)
	case n < 90:
		m.sync()
	case n < 93:
		m.restart()
	case n < 97:
		m.crash(false)
	default:
		m.crash(true)
	}
}

func (m *model) push(kind schema.Kind) {
	k := &m.kinds[kind]
	k.pushed++
	k.run[k.pushed] = m.runs
	b := &Batch{
		Kind: kind, Data: batchOf(kind, k.pushed, m.random.IntN(2000)), Seq: uint64(k.pushed), Events: k.pushed,
		Closed: int64(k.pushed), Last: schema.KTime(k.pushed),
	}
	if err := m.o.Append(b, false); err != nil {
		m.t.Fatal(err)
	}
	k.stored[k.pushed] = spot{m.o.path(b.file), b.at.After(len(b.Data), b.Events).Off}
}

func (o *Outbox) path(f *file) string { return filepath.Join(o.opts.Dir, f.String()) }

func (m *model) ack(kind schema.Kind) {
	for _, other := range modelKinds {
		next(m.t, m.o, other) // passes batches that a power cut took
	}
	b := next(m.t, m.o, kind)
	k := &m.kinds[kind]
	if b == nil {
		for id := k.last + 1; id <= k.pushed; id++ {
			if !k.taken[id] && !k.gone[id] && !m.earlier(k.run[id]) {
				m.t.Fatalf("%s %d is stored and does not come", kind, id)
			}
		}
		return
	}
	id := idOf(m.t, kind, b.Data)
	if b.Seq != uint64(id) || id <= k.last {
		m.t.Fatalf("%s %d comes behind %d, with seq %d", kind, id, k.last, b.Seq)
	}
	for skipped := k.last + 1; skipped < id; skipped++ {
		if !k.taken[skipped] && !k.gone[skipped] {
			m.t.Fatalf("%s %d comes and %d has not", kind, id, skipped)
		}
	}
	for other := range m.kinds {
		for earlier, run := range m.kinds[other].run {
			if o := &m.kinds[other]; run < k.run[id] && !o.taken[earlier] && !o.gone[earlier] {
				m.t.Fatalf("%s %d of run %d comes before %s %d of run %d",
					kind, id, k.run[id], schema.Kind(other), earlier, run)
			}
		}
	}
	if m.random.IntN(4) == 0 {
		return // NATS does not ack it
	}
	if k.taken[id] {
		m.again++
	}
	m.o.Ack(b)
	k.taken[id], k.last = true, id
}

// earlier reports whether a batch comes that was made in a run before this one.
func (m *model) earlier(run int) bool {
	for _, kind := range modelKinds {
		if b := next(m.t, m.o, kind); b != nil && m.kinds[kind].run[int(b.Seq)] < run {
			return true
		}
	}
	return false
}

// sync checks that all batches that are not acked are synced.
func (m *model) sync() {
	m.o.syncNow()
	for i := range m.o.queues {
		q := &m.o.queues[i]
		for i, s := range q.files {
			if q.eventsIn(i) > 0 && s.Run() == m.o.run && s.synced != s.end.Off {
				m.t.Fatalf("%s: %d of %d bytes are synced", s.String(), s.synced, s.end.Off)
			}
		}
	}
}

func (m *model) restart() {
	m.o.Close()
	m.begin()
}

// synced are the bytes that survive a power cut, of the files of this run.
func (o *Outbox) synced() map[string]int64 {
	all := map[string]int64{}
	for i := range o.queues {
		for _, s := range o.queues[i].files {
			if s.Run() == o.run {
				all[o.path(s)] = s.synced
			}
		}
	}
	return all
}

// crash leaves the directory as a kill does, or as a power cut may: unsynced bytes are gone from some offset on, and
// the state is older or corrupt.
func (m *model) crash(power bool) {
	synced := m.o.synced()
	for kind := range m.kinds {
		k := &m.kinds[kind]
		for id, at := range k.stored {
			if limit, here := synced[at.path]; power && here && at.end > limit && !k.taken[id] {
				k.gone[id] = true
				m.power++
			}
		}
	}
	m.o.crash()
	if power {
		cutPower(m.t, m.random, synced)
		if m.random.IntN(4) == 0 {
			if err := os.WriteFile(filepath.Join(m.dir, "state"), []byte("gput"), 0o600); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	m.begin()
}

// cutPower removes all unsynced bytes of files, or some of them.
func cutPower(t *testing.T, random *rand.Rand, synced map[string]int64) {
	for _, path := range slices.Sorted(maps.Keys(synced)) {
		durable := synced[path]
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if durable == 0 && random.IntN(2) == 0 { // its name was not durable either
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if left := durable + random.Int64N(max(1, info.Size()-durable)); left < info.Size() {
			cut(t, path, left)
			if random.IntN(3) == 0 {
				cut(t, path, info.Size()) // as zeros
			}
		}
	}
}

// all takes what there is: everything that must be there comes.
func (m *model) all() {
	for more := true; more; {
		more = false
		for _, kind := range modelKinds {
			for next(m.t, m.o, kind) != nil {
				more = true
				m.ack(kind)
			}
		}
	}
	for _, kind := range modelKinds {
		k := &m.kinds[kind]
		for id := 1; id <= k.pushed; id++ {
			if !k.taken[id] && !k.gone[id] {
				m.t.Errorf("%s %d never came", kind, id)
			}
		}
	}
	if s := m.o.Stats(); s.Batches != 0 {
		m.t.Errorf("left: %+v", s)
	}
	m.o.Close()
	if left := files(m.t, m.dir, "*.*"); len(left) > 0 {
		m.t.Errorf("files are left: %v", left)
	}
}

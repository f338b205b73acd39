package outbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/outbox/segment"
	"github.com/gputap/gputap/schema"
)

// sums does to an outbox what publishers, the disk, an operator and Linux may do.
type sums struct {
	*books
	random   *rand.Rand
	kills    bool // runs may end without a last word
	removed  bool // files were, and the outbox may not have noticed
	vanished bool // the directory was removed
	damaged  map[string]bool
	last     [schema.NumKinds][2]uint64
	steps    []string
}

var sumKinds = []schema.Kind{memory, launch, host, schema.KindCopy}

// TestSums takes random steps: small limits, a full spool, directories that vanish, damage, kills and power cuts. Over
// all runs the events that came and those that are reported as lost are those that were made, but for what kills and
// power cuts take.
func TestSums(t *testing.T) {
	t.Parallel()
	randomSums(t, 8)
}

func randomSums(t *testing.T, seeds uint64) {
	t.Helper()
	var lost, came atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 7))
				m := &sums{random: random, kills: seed%2 == 1, damaged: map[string]bool{}}
				m.books = newBooks(t, m.someLimit(), 8_000)
				for range 250 {
					m.step()
				}
				if t.Failed() {
					return
				}
				if m.balance(); t.Failed() {
					t.Log(m.steps)
				}
				if m.came < m.made {
					lost.Add(1)
				}
				if m.came > 0 {
					came.Add(1)
				}
			})
		}
	})
	if lost.Load() == 0 || came.Load() == 0 {
		t.Errorf("events were lost in %d runs and came in %d: the test proves nothing", lost.Load(), came.Load())
	}
}

func (m *sums) someLimit() int64 {
	if m.random.IntN(3) == 0 {
		return 1 << 30
	}
	return int64(60_000 + m.random.IntN(200_000))
}

func (m *sums) step() {
	kind := sumKinds[m.random.IntN(len(sumKinds))]
	what := ""
	switch n := m.random.IntN(100); {
	case n < 40:
		what = "push " + kind.String()
		m.push(kind, m.random.IntN(3000), 1+m.random.IntN(1000))
	case n < 57:
		what = "store"
		m.store()
	case n < 62:
		what = "drop " + kind.String()
		if q := m.kept[kind]; len(q) > 0 && q[0] != m.flying[kind] {
			m.opts.Lost.Add(uint64(q[0].Events))
			m.kept[kind] = q[1:]
		}
	case n < 81:
		what = "ack " + kind.String()
		m.ack(kind)
	case n < 89:
		what = "sync"
		m.sync()
	case n < 91:
		what = "fail"
		m.o.fail(unix.EIO)
	case n < 92:
		what = "sync fails"
		if s := m.o.open[kind]; s != nil {
			s.handle.Close()
		}
	case n < 93:
		what = "vanish"
		m.vanish()
	case n < 94:
		what = "remove files"
		m.removed = true
		for _, path := range files(m.t, m.opts.Dir, "*."+kind.String()) {
			if err := os.Remove(path); err != nil {
				m.t.Fatal(err)
			}
		}
	case n < 95:
		what = "reject " + kind.String()
		if m.fly(kind) {
			m.inOrder(kind)
			m.reject(kind)
		}
	default:
		what = m.end()
	}
	m.steps = append(m.steps, what)
}

// ack may leave a batch in flight.
func (m *sums) ack(kind schema.Kind) {
	flew := m.flying[kind] != nil
	if !m.fly(kind) {
		return
	}
	m.inOrder(kind)
	if flew || m.random.IntN(4) > 0 {
		m.land(kind)
	}
}

// inOrder checks that in one run the batches of a kind come in order, those of earlier runs first.
func (m *sums) inOrder(kind schema.Kind) {
	var at [2]uint64
	if _, err := fmt.Sscanf(string(m.flying[kind].Data), "%d %d ", &at[0], &at[1]); err != nil {
		m.t.Fatal(err)
	}
	if slices.Compare(at[:], m.last[kind][:]) < 0 {
		m.t.Errorf("%s %v comes behind %v", kind, at, m.last[kind])
	}
	m.last[kind] = at
}

func (m *sums) vanish() {
	m.vanished = true
	err := os.RemoveAll(m.opts.Dir)
	if err == nil && m.random.IntN(2) == 0 {
		err = os.Mkdir(m.opts.Dir, 0o700)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// end ends a run in one of several ways, may damage its files, and starts the next one.
func (m *sums) end() (what string) {
	if m.removed || m.vanished { // batches of files that are gone count when they are due
		m.drain()
	}
	m.last = [schema.NumKinds][2]uint64{}
	switch n := m.random.IntN(6); {
	case m.vanished: // nothing is left to report these losses from
		what = "end without a directory"
		m.fewer += m.o.unreported + m.opts.Lost.Load() - min(m.opts.Lost.Load(), m.reported[m.run])
		m.o.crash()
	case n < 2 || !m.kills && n < 4:
		what = "close"
		m.finish()
		if m.random.IntN(2) == 0 {
			what += m.damage()
		}
	case n == 2:
		what = "crash"
		m.crash(false)
	case n == 3:
		what = "power"
		m.crash(true)
	default:
		what = "sync and crash"
		m.sync()
		m.store()
		m.sync()
		m.crash(m.random.IntN(2) == 0)
	}
	if m.random.IntN(2) == 0 {
		m.opts.MaxBytes = m.someLimit()
	}
	m.acked, m.removed, m.vanished = 0, false, false
	m.start()
	return what
}

// damage changes a byte of a file that was closed.
func (m *sums) damage() (what string) {
	list := slices.DeleteFunc(files(m.t, m.opts.Dir, "*.*"), func(path string) bool {
		return !isSegment(path) || m.damaged[path] // a second change may be invisible
	})
	if len(list) == 0 {
		return ""
	}
	path := list[m.random.IntN(len(list))]
	at := m.random.Int64N(stat(m.t, path).Size())
	flip(m.t, path, at)
	m.damaged[path] = true
	return fmt.Sprintf(", damage at %d of %s", at, filepath.Base(path))
}

// crash ends a run as a kill or a power cut does, and notes how much that may take: batches in memory alone,
// unsynced batches, losses and acks that the state on the disk does not have.
func (m *sums) crash(power bool) {
	o := m.o
	var st state
	if o.dir != nil && o.dir.ReadState(&st) != nil {
		st = state{}
	}
	m.more += m.acked
	m.fewer += o.opts.Lost.Load() - min(st.Lost, o.opts.Lost.Load())
	for _, q := range m.kept {
		for _, b := range q {
			m.fewer += uint64(b.Events)
		}
	}
	for _, b := range m.flying {
		if b != nil && b.file != nil && !slices.Contains(o.queues[b.Kind].files, b.file) {
			m.fewer += uint64(b.Events) // its file is gone
		}
	}
	synced := o.synced()
	if power {
		for i := range o.queues {
			for j, s := range o.queues[i].files {
				if s.Run() == o.run && s.synced < s.end.Off {
					m.fewer += o.queues[i].eventsIn(j)
				}
			}
		}
	}
	o.crash()
	if power {
		for path, n := range synced {
			synced[path] = max(n, 1) // names stay
		}
		cutPower(m.t, m.random, synced)
	}
}

func isSegment(path string) bool {
	_, ok := segment.Parse(filepath.Base(path))
	return ok
}

// eventsIn is how many events of a file are not acked.
func (q *queue) eventsIn(i int) uint64 {
	return q.files[i].end.Events - max(q.files[i].Begin.Events, q.acked.Events)
}

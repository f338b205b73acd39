package producer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// sums does what comes to mind to an outbox.
type sums struct {
	*books
	random *rand.Rand
	kills  bool // runs may end without a last word

	removed bool            // files were, and the outbox may not have noticed
	damaged map[string]bool // files
	last    [schema.NumKinds][2]uint64
	done    []string
	claims  struct {
		kind  schema.Kind
		batch *encoded
	}
}

var sumKinds = []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindHost, schema.KindCopy}

// TestOutboxSums does in random order what publishers, the disk, an operator and Linux may do: small limits, memory that overflows,
// directories that vanish, damage, kills and power cuts. Over all runs the events that came and those that are told as lost are
// those that were made, but for what kills and cuts take.
func TestOutboxSums(t *testing.T) {
	lost, came := 0, 0
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			m := &sums{random: random, kills: seed%2 == 1, damaged: map[string]bool{}}
			m.books = newBooks(t, 8_000+random.IntN(40_000), m.someLimit(), 8_000)
			for range 250 {
				m.step()
			}
			m.unclaim(nil)
			if t.Failed() {
				return
			}
			m.close()
			if t.Failed() {
				t.Log(m.done)
			}
			if m.came < m.made {
				lost++
			}
			if m.came > 0 {
				came++
			}
		})
	}
	if lost == 0 || came == 0 {
		t.Errorf("events were lost in %d runs and came in %d: nothing is shown", lost, came)
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
		m.push(kind, m.random.IntN(3000), uint64(1+m.random.IntN(1000)))
	case n < 52:
		what = "write"
		if m.claims.batch == nil {
			m.s.writeRound()
		}
	case n < 57:
		what = "claim " + kind.String()
		if m.claims.batch == nil {
			_ = m.s.sweep()
			m.claims.kind, m.claims.batch = kind, m.s.claim(kind)
		}
	case n < 62:
		what = "unclaim"
		m.unclaim([]error{nil, nil, unix.EIO}[m.random.IntN(3)])
	case n < 81:
		what = "ack " + kind.String()
		m.ack(kind)
	case n < 89:
		what = "settle"
		if m.claims.batch == nil {
			m.settle()
			m.removed = m.removed && (m.flying != [schema.NumKinds]*encoded{} || m.s.outbox.failing)
		}
	case n < 91:
		what = "fail"
		m.s.mu.Lock()
		m.s.failed(unix.EIO)
		m.s.mu.Unlock()
	case n < 92:
		what = "sync fails"
		if open := m.s.outbox.writer.open[kind]; open != nil && m.claims.batch == nil {
			open.file.Close()
		}
	case n < 93:
		what = "vanish"
		m.vanish()
	case n < 94:
		what = "remove files"
		m.removed = true
		for _, path := range files(m.t, m.dir, "*."+kind.String()) {
			if err := os.Remove(path); err != nil {
				m.t.Fatal(err)
			}
		}
	case n < 95:
		what = "refuse " + kind.String()
		if m.fly(kind) {
			m.inOrder(kind)
			m.s.refused(m.flying[kind])
			m.s.acked(kind)
			m.flying[kind] = nil
		}
	default:
		what = m.end()
	}
	m.done = append(m.done, what)
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

// inOrder: in one life the batches of a kind come in order, those of earlier runs first.
func (m *sums) inOrder(kind schema.Kind) {
	var b schema.Batch
	if err := m.decoder.Decode(m.flying[kind].data, &b); err != nil {
		m.t.Fatal(err)
	}
	at := [2]uint64{b.Run, b.Seq}
	if slices.Compare(at[:], m.last[kind][:]) < 0 {
		m.t.Errorf("%s %v comes behind %v", kind, at, m.last[kind])
	}
	m.last[kind] = at
}

func (m *sums) unclaim(err error) {
	e := m.claims.batch
	if e == nil {
		return
	}
	var seg *segment
	if err == nil {
		seg, err = m.s.write(m.claims.kind, e)
	}
	m.s.written(m.claims.kind, e, seg, err)
	m.claims.batch = nil
}

func (m *sums) vanish() {
	var err error
	if m.s.outbox.vanished() {
		return
	}
	if m.random.IntN(2) == 0 {
		err = os.RemoveAll(m.dir)
	} else {
		err = errors.Join(os.Rename(m.dir, fmt.Sprint(m.dir, len(m.done))), os.Mkdir(m.dir, 0o700))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// end ends a run in one of several ways, does something to what it left, and starts the next one.
func (m *sums) end() (what string) {
	m.unclaim(nil)
	for kind := range m.flying { // else what is in flight from a file that is gone is unknown
		if m.removed && m.flying[kind] != nil {
			m.land(schema.Kind(kind))
		}
	}
	m.flying, m.last = [schema.NumKinds]*encoded{}, [schema.NumKinds][2]uint64{}
	switch n := m.random.IntN(6); {
	case n < 2 || !m.kills && n < 4:
		what = "finish"
		m.s.finish()
		if l := m.s.level(); m.s.outbox.failing && l.unstored > 0 { // nothing could be written down
			m.t.Fatalf("the disk is good: %+v", l)
		}
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
		what = "settle and crash"
		m.write()
		m.settle()
		m.write() // what was stored before the directory was seen to be gone
		m.settle()
		m.crash(m.random.IntN(2) == 0)
	}
	if m.random.IntN(2) == 0 {
		m.limit = m.someLimit()
	}
	m.acked, m.removed = 0, false
	m.start()
	return what
}

// damage changes a byte of a file that was closed.
func (m *sums) damage() (what string) {
	list := files(m.t, m.dir, "*.*")
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	defer root.Close()
	list = slices.DeleteFunc(list, func(path string) bool {
		_, number, ok := parseName(filepath.Base(path))
		seg, _, _, err := openSegment(root, filepath.Base(path), number)
		return !ok || err != nil || seg.cutOff || m.damaged[path] // a second one may be where nobody can tell
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

// crash ends a run as a kill or a power cut would, and notes down how much that may take: what memory alone held, what was not
// synced, losses that the cursor does not have; and acks that it does not have.
func (m *sums) crash(power bool) {
	o := m.s.outbox
	var c cursor
	if root, err := os.OpenRoot(m.dir); err == nil {
		c, _ = readCursor(root)
		root.Close()
	}
	for run, d := range o.debts {
		if run == o.run {
			d.lost = m.s.dropped
		}
		written, is := c.debts[run]
		if !is { // all was told
			written = debt{lost: d.told, told: d.told}
		}
		m.fewer += max(d.lost, written.lost) - written.lost
		m.moreThan += max(d.told, written.told) - written.told
		delete(c.debts, run)
	}
	if len(c.debts) > 0 {
		m.t.Errorf("%v were taken over, and the cursor does not say so", c.debts)
	}
	m.moreThan += m.acked
	for kind, q := range m.s.queues {
		for _, e := range q[m.s.stored[kind]:] {
			m.fewer += uint64(e.events)
		}
		if e := m.s.inFlight[kind]; e != nil && e.mark.seg == nil && (len(q) == 0 || q[0] != e) {
			m.fewer += uint64(e.events)
		}
	}
	if o.vanished() || m.removed {
		for kind, list := range o.segments {
			for _, seg := range list {
				_, events := o.left(schema.Kind(kind), seg)
				m.fewer += events
			}
		}
	}
	synced := map[string]int64{}
	for kind, list := range o.segments {
		for _, seg := range list {
			if seg.earlier {
				continue
			}
			synced[seg.path()] = seg.synced
			if _, events := o.left(schema.Kind(kind), seg); power && seg.synced < seg.end.off {
				m.fewer += events
			}
		}
	}
	m.s.crash()
	if !power {
		return
	}
	for _, path := range slices.Sorted(maps.Keys(synced)) {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if left := synced[path] + m.random.Int64N(max(1, info.Size()-synced[path])); left < info.Size() {
			cut(m.t, path, left)
			if m.random.IntN(3) == 0 {
				cut(m.t, path, info.Size()) // as zeros
			}
		}
	}
}

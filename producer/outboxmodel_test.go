package producer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gputap/gputap/schema"
)

// model is what an outbox has to give back.
type model struct {
	t      *testing.T
	random *rand.Rand
	s      *spool
	dir    string
	kinds  [schema.NumKinds]kindModel
	lives  int
	power  int // cuts that took something
	again  int // batches that came twice
}

type kindModel struct {
	pushed int            // batches 1 to pushed exist
	taken  map[int]bool   // acked at least once
	gone   map[int]bool   // may be gone: power was cut before they were synced, or the crash before they were written
	stored map[int]spotOf // where batches were written in this life
	last   int            // acked in this life; 0: none
	life   map[int]int    // in which a batch was made
}

type spotOf struct {
	path string
	end  int64
}

const modelMemory, modelSegment = 20_000, 8_000

// TestOutboxModel does what comes to mind in random order: pushes, writes, syncs, acks, restarts, crashes and power cuts.
// In each life batches come in order, byte for byte, those of a life behind all of the lives before, and every one that was not
// acked and must be there comes.
func TestOutboxModel(t *testing.T) {
	powers, repeats := 0, 0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir()}
			for kind := range m.kinds {
				m.kinds[kind] = kindModel{taken: map[int]bool{}, gone: map[int]bool{}, life: map[int]int{}}
			}
			m.begin()
			for range 600 {
				m.step()
			}
			m.restart()
			m.all()
			powers, repeats = powers+m.power, repeats+m.again
		})
	}
	if powers == 0 || repeats == 0 {
		t.Errorf("%d power cuts took something, %d batches came twice: nothing is shown", powers, repeats)
	}
}

func (m *model) begin() {
	m.s = spoolAt(m.t, m.dir, modelMemory, 1<<30, modelSegment, quiet())
	m.lives++
	for kind := range m.kinds {
		m.kinds[kind].stored, m.kinds[kind].last = map[int]spotOf{}, 0
	}
}

func (m *model) step() {
	kind := outboxKinds[m.random.IntN(len(outboxKinds))]
	switch n := m.random.IntN(100); {
	case n < 40:
		m.push(kind)
	case n < 60:
		m.write()
	case n < 85:
		m.ack(kind)
	case n < 93:
		m.settle()
	case n < 95:
		m.restart()
	case n < 98:
		m.crash(false)
	default:
		m.crash(true)
	}
}

// push keeps memory from dropping what the disk has not yet.
func (m *model) push(kind schema.Kind) {
	bytes := m.random.IntN(2000)
	if m.s.level().bytes > modelMemory-2*2100 {
		for m.s.writeRound() {
		}
		m.note()
	}
	k := &m.kinds[kind]
	k.pushed++
	k.life[k.pushed] = m.lives
	pushID(m.s, kind, k.pushed, bytes)
}

func (m *model) write() {
	m.s.writeRound()
	m.note()
}

// note takes down where batches are.
func (m *model) note() {
	for kind := range m.kinds {
		for _, e := range m.s.queues[kind] {
			if e.mark.seg != nil {
				m.kinds[kind].stored[int(e.seq)] = spotOf{e.mark.seg.path(), e.behind().off}
			}
		}
	}
}

func (m *model) ack(kind schema.Kind) {
	e := try(m.s, kind)
	k := &m.kinds[kind]
	if e == nil {
		for id := k.last + 1; id <= k.pushed; id++ {
			if _, written := k.stored[id]; written && !k.taken[id] && !m.earlier(k.life[id]) {
				m.t.Fatalf("%s %d is stored and does not come", kind, id)
			}
		}
		return
	}
	id := idOf(m.t, kind, e.data)
	if e.seq != uint64(id) || id <= k.last {
		m.t.Fatalf("%s %d comes behind %d, with seq %d", kind, id, k.last, e.seq)
	}
	for skipped := k.last + 1; skipped < id; skipped++ {
		if !k.taken[skipped] && !k.gone[skipped] {
			m.t.Fatalf("%s %d comes and %d has not", kind, id, skipped)
		}
	}
	for other := range m.kinds {
		for earlier, life := range m.kinds[other].life {
			if o := &m.kinds[other]; life < k.life[id] && !o.taken[earlier] && !o.gone[earlier] {
				m.t.Fatalf("%s %d of life %d comes before %s %d of life %d", kind, id, k.life[id], schema.Kind(other), earlier, life)
			}
		}
	}
	if m.random.IntN(4) == 0 {
		return // it stays in flight
	}
	if k.taken[id] {
		m.again++
	}
	m.s.acked(kind)
	k.taken[id], k.last = true, id
}

// earlier reports whether a batch comes that was made in a life before this one.
func (m *model) earlier(life int) bool {
	for _, kind := range outboxKinds {
		if e := try(m.s, kind); e != nil && m.kinds[kind].life[int(e.seq)] < life {
			return true
		}
	}
	return false
}

// settle leaves nothing unsynced of what is not acked.
func (m *model) settle() {
	m.s.settle()
	for kind, list := range m.s.outbox.segments {
		for _, seg := range list {
			if left, _ := m.s.outbox.left(schema.Kind(kind), seg); left > 0 && !seg.earlier && seg.synced != seg.end.off {
				m.t.Fatalf("%s: %d of %d bytes are synced", seg.path(), seg.synced, seg.end.off)
			}
		}
	}
}

func (m *model) restart() {
	m.s.finish()
	m.begin()
}

// crash leaves the directory as it is, or as a power cut may: what was not synced is gone from some byte on, and the
// cursor is older or broken.
func (m *model) crash(power bool) {
	synced := map[string]int64{}
	for _, list := range m.s.outbox.segments {
		for _, seg := range list {
			if !seg.earlier {
				synced[seg.path()] = seg.synced
			}
		}
	}
	for kind := range m.kinds {
		k := &m.kinds[kind]
		for id := 1; id <= k.pushed; id++ {
			at, written := k.stored[id]
			limit, ours := synced[at.path]
			durable := written && (!power || !ours || at.end <= limit)
			if now := id > k.last && m.isNew(schema.Kind(kind), id); now && !durable && !k.taken[id] {
				k.gone[id] = true
				m.power++
			}
		}
	}
	m.s.crash()
	if power {
		m.cutPower(synced)
	}
	m.begin()
}

// isNew reports whether a batch was pushed in this life: those of earlier ones are on the disk or gone.
func (m *model) isNew(kind schema.Kind, id int) bool {
	if _, written := m.kinds[kind].stored[id]; written {
		return true
	}
	q := m.s.queues[kind]
	return len(q) > 0 && id >= int(q[0].seq)
}

func (m *model) cutPower(synced map[string]int64) {
	for _, path := range slices.Sorted(maps.Keys(synced)) {
		durable := synced[path]
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if durable == 0 && m.random.IntN(2) == 0 { // its name was not durable either
			if err := os.Remove(path); err != nil {
				m.t.Fatal(err)
			}
			continue
		}
		if left := durable + m.random.Int64N(max(1, info.Size()-durable)); left < info.Size() {
			cut(m.t, path, left)
			if m.random.IntN(3) == 0 {
				cut(m.t, path, info.Size()) // as zeros
			}
		}
	}
	cursor := filepath.Join(m.dir, cursorName)
	if m.random.IntN(4) == 0 {
		if err := os.WriteFile(cursor, []byte("gput"), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

// all takes what there is: nothing that must be there is not.
func (m *model) all() {
	for more := true; more; {
		more = false
		for _, kind := range outboxKinds {
			for try(m.s, kind) != nil {
				more = true
				m.ack(kind)
			}
		}
	}
	for _, kind := range outboxKinds {
		k := &m.kinds[kind]
		for id := 1; id <= k.pushed; id++ {
			if !k.taken[id] && !k.gone[id] {
				m.t.Errorf("%s %d never came", kind, id)
			}
		}
	}
	if l := m.s.level(); l.batches != 0 || l.bytes != 0 {
		m.t.Errorf("left: %+v", l)
	}
	m.s.finish()
	if left := files(m.t, m.dir, "*.*"); len(left) > 0 {
		m.t.Errorf("files are left: %v", left)
	}
}

// FuzzSegment: whatever a file holds, reading it neither fails in other ways than it says nor takes more memory than one
// batch, and every batch that it gives is one whose checksum is right.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	s := spoolAt(f, dir, 1<<20, 1<<30, 1<<20, quiet())
	for id := range 3 {
		pushID(s, schema.KindMemory, id+1, 50*id)
	}
	for s.writeRound() {
	}
	open, err := os.ReadFile(files(f, dir, "*.memory")[0])
	if err != nil {
		f.Fatal(err)
	}
	s.finish()
	closed, err := os.ReadFile(files(f, dir, "*.memory")[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(open)
	f.Add(closed)
	f.Add(closed[:len(closed)-3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, segmentName(schema.KindMemory, 1)), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := spoolAt(t, dir, 1<<20, 1<<30, 1<<20, quiet())
		n := 0
		for e := try(s, schema.KindMemory); e != nil; e = try(s, schema.KindMemory) {
			if n += headBytes + len(e.data); n > len(data) {
				t.Fatalf("%d bytes of batches in a file of %d", n, len(data))
			}
			s.acked(schema.KindMemory)
		}
		if l := s.level(); l.batches != 0 {
			t.Fatalf("%d batches wait for ever", l.batches)
		}
		s.finish()
	})
}

// FuzzCursor: what is read back is what was written, or nothing.
func FuzzCursor(f *testing.F) {
	c := cursor{next: 7}
	c.kinds[schema.KindMemory] = cursorEntry{3, 4, 5, 6}
	c.debts, c.gone, c.torn = map[string]debt{"boot 7": {8, 9, 10}}, []uint64{10, 11}, []uint64{12}
	f.Add(c.text())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := parseCursor(text)
		if again, _ := parseCursor(c.text()); ok && again.text() != c.text() {
			t.Errorf("%v became %v", c, again)
		}
	})
}

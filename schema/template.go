package schema

import (
	"bytes"
	"encoding/binary"

	"github.com/vmihailenco/msgpack/v5"
)

// Template is one encoded batch from which copies are made that differ in header, times, process and
// thread ids, addresses, handles and GPUs. A copy costs what copying its bytes does: columns are not
// encoded again. What moves is written in 8 bytes, so a copy is some bytes a dictionary row larger than
// what Encode writes. A Template is not changed by use, and may be used by many goroutines.
type Template struct {
	kind        Kind
	keys        int
	events      int
	first, last KTime
	body        []byte // what follows the header
	at          [numMoves][]uint32
}

// Move is how a copy differs from its Template. Sums wrap around.
type Move struct {
	Time   KTime  // added to every KTime of the events and processes
	PID    uint32 // added to every process id and thread id; not to Process.NSPID
	Handle uint64 // added to every address and handle from leastAddress on
	GPU    uint64 // added to the last 12 hexadecimal digits of every GPU's UUID
}

// leastAddress is the least number that is taken for an address or handle. Below it are none (0), the
// CUDA streams that every process has (1 and 2), and what is not to be told from such.
const leastAddress = 1 << 16

// moves is what is added to a number of a Template; it stands in 8 bytes, of a UUID in 12.
type moves uint8

const (
	movesTime moves = iota
	movesPID
	movesHandle
	movesHandleLE // in a column's data, little endian; all others are big endian
	movesGPU
	numMoves
)

// marks notes where the numbers are that move, while a Template is written.
type marks struct {
	buf *bytes.Buffer
	at  [numMoves][]uint32
}

// Template encodes the batch as a Template and leaves the Builder as it is.
func (b *Builder) Template() *Template {
	b.buf.Reset()
	m := &marks{buf: &b.buf}
	b.encodeBody(envelope{enc: b.enc, marks: m})
	return &Template{
		kind: b.kind, keys: b.keys(), events: b.events, first: b.First(), last: b.Last(),
		body: bytes.Clone(b.buf.Bytes()), at: m.at,
	}
}

// Kind of the batch.
func (t *Template) Kind() Kind { return t.kind }

// Events of the batch.
func (t *Template) Events() int { return t.events }

// Copier makes copies of Templates. One goroutine uses it at a time.
type Copier struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

// NewCopier returns a Copier.
func NewCopier() *Copier {
	c := &Copier{}
	c.enc = msgpack.NewEncoder(&c.buf)
	return c
}

// Append appends a copy to dst. h gives what it gives to Encode.
func (c *Copier) Append(dst []byte, t *Template, h *Header, m *Move) []byte {
	own := *h
	own.Kind, own.Events, own.First, own.Last = t.kind, t.events, 0, 0
	if t.events > 0 {
		own.First, own.Last = t.first+m.Time, t.last+m.Time
	}
	c.buf.Reset()
	envelope{enc: c.enc}.head(t.keys, &own)
	dst = append(dst, c.buf.Bytes()...)
	from := len(dst)
	dst = append(dst, t.body...)
	t.move(dst[from:], m)
	return dst
}

func (t *Template) move(body []byte, m *Move) {
	for _, at := range t.at[movesTime] {
		p := body[at : at+8]
		binary.BigEndian.PutUint64(p, binary.BigEndian.Uint64(p)+uint64(m.Time))
	}
	for _, at := range t.at[movesHandle] {
		p := body[at : at+8]
		binary.BigEndian.PutUint64(p, binary.BigEndian.Uint64(p)+m.Handle)
	}
	for _, at := range t.at[movesPID] {
		p := body[at : at+8]
		binary.BigEndian.PutUint64(p, uint64(uint32(binary.BigEndian.Uint64(p))+m.PID))
	}
	for _, at := range t.at[movesHandleLE] {
		p := body[at : at+8]
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)+m.Handle)
	}
	for _, at := range t.at[movesGPU] {
		p := body[at : at+uuidTail]
		v, _ := hexadecimal(p)
		putHexadecimal(p, v+m.GPU)
	}
}

// moving writes a number that moves.
func (e envelope) moving(by moves, v uint64) {
	if e.marks == nil {
		e.u(v)
		return
	}
	_ = e.enc.EncodeUint64(v) // always 9 bytes
	e.marks.note(by, 8)
}

// handle writes an address or handle.
func (e envelope) handle(v uint64) {
	if v < leastAddress {
		e.u(v)
		return
	}
	e.moving(movesHandle, v)
}

// note marks the last n bytes that were written.
func (m *marks) note(by moves, n int) { m.at[by] = append(m.at[by], uint32(m.buf.Len()-n)) }

// gpu marks the end of the UUID that was written, if it is one.
func (m *marks) gpu(uuid string) {
	if m == nil || len(uuid) < uuidTail || len(uuid) > maxString {
		return
	}
	if _, ok := hexadecimal([]byte(uuid[len(uuid)-uuidTail:])); ok {
		m.note(movesGPU, uuidTail)
	}
}

// encodeMoving writes a column of times or addresses for a Template. It reports false for one that
// does not move, which is then written as ever.
func (b *Builder) encodeMoving(e envelope, id columnID) bool {
	by, moving := movesHandle, 0
	switch id {
	case colTime:
		by, moving = movesTime, b.events
	case colPtr, colAux, colPool, colDst, colSrc:
		for i := range b.events {
			if b.movesAt(id, i) {
				moving++
			}
		}
	}
	if moving == 0 {
		return false
	}
	c := &b.columns[id]
	e.row(3)
	if moving == b.events { // all: their base moves
		e.moving(by, c.min)
		e.u(uint64(c.width()))
		b.scratch = c.appendData(b.scratch[:0], c.width())
		_ = e.enc.EncodeBytes(b.scratch)
		return true
	}
	e.u(0) // some: each moves alone
	e.u(8)
	b.scratch = b.scratch[:0]
	for i := range b.events {
		b.scratch = binary.LittleEndian.AppendUint64(b.scratch, c.at(i))
	}
	_ = e.enc.EncodeBytes(b.scratch)
	for i := range b.events {
		if b.movesAt(id, i) {
			e.marks.note(movesHandleLE, 8*(b.events-i))
		}
	}
	return true
}

// movesAt reports whether value i of a column is an address or handle. What x holds is as the op says.
func (b *Builder) movesAt(id columnID, i int) bool {
	if id == colAux && b.kind == KindMemory {
		switch b.calls.values[b.columns[colCall].at(i)].Op {
		case OpExport, OpOpen, OpPoolCreate, OpPoolInfo, OpMemInfo: // tokens, limits, attributes and totals
			return false
		}
	}
	return b.columns[id].at(i) >= leastAddress
}

// uuidTail is how many digits of a UUID move.
const uuidTail = 12

func hexadecimal(digits []byte) (v uint64, ok bool) {
	for _, d := range digits {
		switch {
		case '0' <= d && d <= '9':
			v = v<<4 | uint64(d-'0')
		case 'a' <= d && d <= 'f':
			v = v<<4 | uint64(d-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

func putHexadecimal(to []byte, v uint64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// template is one encoded batch of form 1.0 from which cheap copies are made. A copy has another header, and its times,
// ids, addresses, handles and GPUs are shifted. Making a copy costs about as much as copying the bytes, because every
// number that shifts stands in 8 bytes at a known offset. A template does not change: any number of goroutines may use
// it.
type template struct {
	kind        schema.Kind
	events      int
	first, last schema.KTime
	keys        int    // of the envelope
	body        []byte // entries of the envelope behind the header
	at          [numShifts][]uint32
}

// move says how a copy differs from its template. Sums wrap around.
type move struct {
	Time   schema.KTime // added to every KTime of the events and processes
	PID    uint32       // added to every process id and thread id, but not to Process.NSPID
	Handle uint64       // added to every address and handle from leastAddress on
	GPU    uint64       // added to the last 12 hexadecimal digits of every GPU's UUID
}

// leastAddress is the least number that is taken for an address or handle. Below it are 0
// (none) and the CUDA streams 1 and 2, which every process has.
const leastAddress = 1 << 16

// shift names the part of a move that is added to a number. The number has 8 bytes; the end of a UUID has uuidDigits.
type shift uint8

const (
	shiftTime shift = iota
	shiftPID
	shiftHandle
	shiftHandleLE // in the data of a column: little endian. The others are big endian.
	shiftGPU
	numShifts
)

const uuidDigits = 12

// headerKeys are the keys that writeHeader writes.
var headerKeys = map[string]bool{
	"v": true, "k": true, "cl": true, "h": true, "boot": true, "run": true, "seq": true, "n": true, "off": true,
	"t0": true,
	"t1": true, "lost": true,
}

// newTemplate reads an encoded batch, whose header it ignores.
func newTemplate(message []byte) (*template, error) {
	var b schema.Batch
	if err := schema.NewDecoder().Decode(message, &b); err != nil {
		return nil, err
	}
	w := &rewriter{batch: &b, message: message, template: &template{
		kind: b.Kind, events: b.Events, first: b.First, last: b.Last,
	}}
	w.in.Reset(message)
	w.dec, w.enc = msgpack.NewDecoder(&w.in), msgpack.NewEncoder(&w.out)
	w.envelope()
	if w.err != nil {
		return nil, fmt.Errorf("make a template of a %s batch: %w", b.Kind, w.err)
	}
	w.template.body = w.out.Bytes()
	return w.template, nil
}

// rewriter copies a message value by value. It keeps the first error. Writing to a bytes.Buffer cannot fail.
type rewriter struct {
	batch    *schema.Batch // the same message
	message  []byte
	in       bytes.Reader
	dec      *msgpack.Decoder
	out      bytes.Buffer
	enc      *msgpack.Encoder
	template *template
	err      error
}

func (w *rewriter) envelope() {
	w.template.keys = len(headerKeys)
	for range w.mapLen() {
		key := w.text()
		if headerKeys[key] {
			w.skip()
			continue
		}
		w.template.keys++
		_ = w.enc.EncodeString(key)
		switch key {
		case "cols":
			w.columns()
		case "older":
			w.numbers(schema.ContentID)
		default:
			w.dictionary(key)
		}
	}
}

// dictionary copies the rows of a dictionary, or any other value as it is.
func (w *rewriter) dictionary(key string) {
	for i := range schema.Dictionaries {
		spec := &schema.Dictionaries[i]
		switch {
		case spec.Key != key:
		case spec.Bare:
			w.numbers(spec.Fields[0].Content)
			return
		default:
			for range w.list() {
				for field := range w.list() {
					if field < len(spec.Fields) {
						w.field(spec.Fields[field].Content, spec.Fields[field].Name == "uuid")
					} else {
						w.raw()
					}
				}
			}
			return
		}
	}
	w.raw()
}

func (w *rewriter) numbers(content schema.Content) {
	for range w.list() {
		w.field(content, false)
	}
}

func (w *rewriter) field(content schema.Content, uuid bool) {
	switch content {
	case schema.ContentTime:
		w.shifted(shiftTime, w.uint())
	case schema.ContentID:
		w.shifted(shiftPID, w.uint())
	case schema.ContentAddress:
		if v := w.uint(); v >= leastAddress {
			w.shifted(shiftHandle, v)
		} else {
			_ = w.enc.EncodeUint(v)
		}
	default:
		w.raw()
		if tail := w.out.Bytes(); uuid && len(tail) >= uuidDigits {
			if _, ok := hexadecimal(tail[len(tail)-uuidDigits:]); ok {
				w.note(shiftGPU, uuidDigits)
			}
		}
	}
}

func (w *rewriter) columns() {
	n := w.mapLen()
	_ = w.enc.EncodeMapLen(n)
	for range n {
		key := w.text()
		_ = w.enc.EncodeString(key)
		content := schema.ContentNumber
		for i := range schema.Columns {
			if schema.Columns[i].Key == key {
				content = schema.Columns[i].Content
			}
		}
		if content != schema.ContentTime && content != schema.ContentAddress {
			w.raw()
			continue
		}
		from := w.position()
		w.skip()
		w.column(key, content, w.message[from:w.position()])
	}
}

// column writes a column of times or addresses. If all values shift, the base of the column does. If some do, each
// value stands in 8 bytes and shifts alone.
func (w *rewriter) column(key string, content schema.Content, encoded []byte) {
	var c schema.Column
	if w.err == nil {
		c, w.err = decodeColumn(encoded)
	}
	if w.err != nil {
		return
	}
	by, shifts := shiftHandle, 0
	if content == schema.ContentTime {
		by, shifts = shiftTime, w.batch.Events
	} else {
		for i := range w.batch.Events {
			if w.isAddress(key, &c, i) {
				shifts++
			}
		}
	}
	switch shifts {
	case 0:
		w.out.Write(encoded)
	case w.batch.Events:
		_ = w.enc.EncodeArrayLen(3)
		w.shifted(by, c.Base)
		_ = w.enc.EncodeUint(uint64(c.Width))
		_ = w.enc.EncodeBytes(append([]byte{}, c.Data...))
	default:
		data := make([]byte, 0, 8*w.batch.Events)
		for i := range w.batch.Events {
			data = binary.LittleEndian.AppendUint64(data, c.At(i))
		}
		_ = w.enc.EncodeArrayLen(3)
		_ = w.enc.EncodeUint(0)
		_ = w.enc.EncodeUint(8)
		_ = w.enc.EncodeBytes(data)
		for i := range w.batch.Events {
			if w.isAddress(key, &c, i) {
				w.note(shiftHandleLE, 8*(w.batch.Events-i))
			}
		}
	}
}

func decodeColumn(encoded []byte) (c schema.Column, err error) {
	dec := msgpack.NewDecoder(bytes.NewReader(encoded))
	if _, err = dec.DecodeArrayLen(); err != nil {
		return c, err
	}
	if c.Base, err = dec.DecodeUint64(); err != nil {
		return c, err
	}
	if c.Width, err = dec.DecodeUint8(); err != nil {
		return c, err
	}
	c.Data, err = dec.DecodeBytes()
	return c, err
}

// isAddress reports whether value i of a column is an address or handle. Some ops put other numbers into x.
func (w *rewriter) isAddress(key string, c *schema.Column, i int) bool {
	if key == "x" && w.batch.Kind == schema.KindMemory {
		switch w.batch.Calls[w.batch.Call().At(i)].Op {
		case schema.OpExport, schema.OpOpen, schema.OpPoolCreate, schema.OpPoolInfo, schema.OpMemInfo:
			return false // tokens, limits, attributes and totals
		}
	}
	return c.At(i) >= leastAddress
}

// shifted writes a number that shifts, in 8 bytes, and notes where it is.
func (w *rewriter) shifted(by shift, v uint64) {
	_ = w.enc.EncodeUint64(v)
	w.note(by, 8)
}

// note marks the place of a number that shifts: the given number of bytes before the end.
func (w *rewriter) note(by shift, before int) {
	w.template.at[by] = append(w.template.at[by], uint32(w.out.Len()-before))
}

func (w *rewriter) position() int { return len(w.message) - w.in.Len() }

// raw copies the next value as it is.
func (w *rewriter) raw() {
	from := w.position()
	w.skip()
	w.out.Write(w.message[from:w.position()])
}

func (w *rewriter) skip() {
	if w.err == nil {
		w.err = w.dec.Skip()
	}
}

func (w *rewriter) mapLen() (n int) {
	if w.err == nil {
		n, w.err = w.dec.DecodeMapLen()
	}
	return max(n, 0)
}

// list copies the head of an array and returns its length.
func (w *rewriter) list() (n int) {
	if w.err == nil {
		n, w.err = w.dec.DecodeArrayLen()
	}
	_ = w.enc.EncodeArrayLen(max(n, 0))
	return max(n, 0)
}

func (w *rewriter) text() (s string) {
	if w.err == nil {
		s, w.err = w.dec.DecodeString()
	}
	return s
}

func (w *rewriter) uint() (v uint64) {
	if w.err == nil {
		v, w.err = w.dec.DecodeUint64()
	}
	return v
}

// copier makes copies of templates. One goroutine uses it at a time.
type copier struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

func newCopier() *copier {
	c := &copier{}
	c.enc = msgpack.NewEncoder(&c.buf)
	return c
}

// append appends a copy to dst. h gives identity, seq, clock and losses, as for schema.Builder.Encode.
func (c *copier) append(dst []byte, t *template, h *schema.Header, m *move) []byte {
	c.buf.Reset()
	c.header(t, h, m)
	dst = append(dst, c.buf.Bytes()...)
	from := len(dst)
	dst = append(dst, t.body...)
	t.shift(dst[from:], m)
	return dst
}

// header writes the envelope's first keys as schema.Builder.Encode does.
func (c *copier) header(t *template, h *schema.Header, m *move) {
	var first, last schema.KTime
	if t.events > 0 {
		first, last = t.first+m.Time, t.last+m.Time
	}
	_ = c.enc.EncodeMapLen(t.keys)
	c.uint("v", 0)
	c.text("k", t.kind.String())
	c.text("cl", h.Cluster)
	c.text("h", h.Host)
	c.text("boot", h.BootID)
	c.uint("run", h.Run)
	c.uint("seq", h.Seq)
	c.uint("n", uint64(t.events))
	_ = c.enc.EncodeString("off")
	_ = c.enc.EncodeInt(h.ClockOffset)
	c.uint("t0", uint64(first))
	c.uint("t1", uint64(last))
	_ = c.enc.EncodeString("lost")
	causes := 0
	for _, n := range h.Lost {
		if n > 0 {
			causes++
		}
	}
	_ = c.enc.EncodeMapLen(causes)
	for cause, n := range h.Lost {
		if n > 0 {
			c.uint(schema.Loss(cause).String(), n)
		}
	}
}

func (c *copier) uint(key string, v uint64) {
	_ = c.enc.EncodeString(key)
	_ = c.enc.EncodeUint(v)
}

func (c *copier) text(key, v string) {
	_ = c.enc.EncodeString(key)
	_ = c.enc.EncodeString(v)
}

// shift adds a move to the numbers of a copy.
func (t *template) shift(body []byte, m *move) {
	for _, at := range t.at[shiftTime] {
		p := body[at : at+8]
		binary.BigEndian.PutUint64(p, binary.BigEndian.Uint64(p)+uint64(m.Time))
	}
	for _, at := range t.at[shiftHandle] {
		p := body[at : at+8]
		binary.BigEndian.PutUint64(p, binary.BigEndian.Uint64(p)+m.Handle)
	}
	for _, at := range t.at[shiftPID] {
		p := body[at : at+8]
		binary.BigEndian.PutUint64(p, uint64(uint32(binary.BigEndian.Uint64(p))+m.PID))
	}
	for _, at := range t.at[shiftHandleLE] {
		p := body[at : at+8]
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)+m.Handle)
	}
	for _, at := range t.at[shiftGPU] {
		p := body[at : at+uuidDigits]
		v, _ := hexadecimal(p)
		putHexadecimal(p, v+m.GPU)
	}
}

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

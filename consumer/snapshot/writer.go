package snapshot

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// Writer appends values to one buffer. The zero Writer is ready.
type Writer struct {
	// Pseudonym returns what is written for a private string; nil: the string.
	Pseudonym func(schema.Private, string) string

	buf     []byte
	strings map[string]uint64 // number of each string since the last Reset, from 2 on
}

// Reset discards the values and keeps the memory.
func (w *Writer) Reset() {
	w.buf = w.buf[:0]
	clear(w.strings)
}

// Grow makes room for so many more bytes.
func (w *Writer) Grow(n int) { w.buf = slices.Grow(w.buf, n) }

// Data returns the encoded values. The Writer owns them; they are valid until the next Reset.
func (w *Writer) Data() []byte { return w.buf }

// Byte appends one byte.
func (w *Writer) Byte(v byte) { w.buf = append(w.buf, v) }

// Uint appends a varint: a small number takes few bytes.
func (w *Writer) Uint(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }

// Int appends a varint with a sign: a number near 0 takes few bytes.
func (w *Writer) Int(v int64) { w.buf = binary.AppendVarint(w.buf, v) }

// Bool appends one byte.
func (w *Writer) Bool(v bool) {
	if v {
		w.Byte(1)
		return
	}
	w.Byte(0)
}

// Bytes appends the length of b, then b.
func (w *Writer) Bytes(b []byte) {
	w.Uint(uint64(len(b)))
	w.buf = append(w.buf, b...)
}

// String appends a string the first time, and its number after that.
func (w *Writer) String(s string) {
	if s == "" {
		w.Uint(0)
		return
	}
	if n := w.strings[s]; n != 0 {
		w.Uint(n)
		return
	}
	if w.strings == nil {
		w.strings = map[string]uint64{}
	}
	w.strings[s] = uint64(len(w.strings)) + 2
	w.Uint(1)
	w.Uint(uint64(len(s)))
	w.buf = append(w.buf, s...)
}

// Time appends a wall time with nanoseconds, or the zero time.
func (w *Writer) Time(t time.Time) {
	w.Bool(!t.IsZero())
	if !t.IsZero() {
		w.Int(t.UnixNano())
	}
}

// Section appends a section.
func (w *Writer) Section(s Section) {
	w.String(s.Cluster)
	w.String(s.Host)
	w.Bytes(s.Data)
}

package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// Errors of Restore.
var (
	ErrVersion = errors.New("snapshot of a newer program")
	ErrDamaged = errors.New("damaged snapshot")
)

// Reader reads what a Writer wrote. After the first thing that cannot be it reads zeros, and Err says
// what that was.
type Reader struct {
	data    []byte // what is left
	strings []string
	version uint64
	err     error
}

// NewReader reads data, which stays the caller's: strings and bytes are copied.
func NewReader(data []byte) *Reader { return &Reader{data: data} }

// Version is that of the section's form.
func (r *Reader) Version() uint64 { return r.version }

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Fail makes it an error that the bytes say something that no state can be.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
	}
	r.data = nil
}

func (r *Reader) take(n int) []byte {
	if n > len(r.data) {
		r.Fail("it ends early")
		return nil
	}
	taken := r.data[:n:n]
	r.data = r.data[n:]
	return taken
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.Fail("it ends early")
		return 0
	}
	r.data = r.data[n:]
	return v
}

// Uint32 reads a number that has 32 bits.
func (r *Reader) Uint32() uint32 { return uint32(r.upTo(math.MaxUint32)) }

// Below reads a number below n, an index for example: 0 when it is not.
func (r *Reader) Below(n int) int {
	if n <= 0 {
		r.Fail("it refers to what is not there")
		return 0
	}
	return int(r.upTo(uint64(n) - 1))
}

func (r *Reader) upTo(most uint64) uint64 {
	v := r.Uint()
	if v > most {
		r.Fail("%d where at most %d can be", v, most)
		return 0
	}
	return v
}

// Int reads a number that may be negative.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.data)
	if n <= 0 {
		r.Fail("it ends early")
		return 0
	}
	r.data = r.data[n:]
	return v
}

// Int32 reads a number that has 32 bits and may be negative.
func (r *Reader) Int32() int32 {
	v := r.Int()
	if v != int64(int32(v)) {
		r.Fail("%d where 32 bits can be", v)
		return 0
	}
	return int32(v)
}

// Bool reads one byte.
func (r *Reader) Bool() bool {
	b := r.Byte()
	if b > 1 {
		r.Fail("%d where yes or no can be", b)
	}
	return b == 1
}

// Float64 reads eight bytes.
func (r *Reader) Float64() float64 {
	if b := r.take(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// Float32 reads four bytes.
func (r *Reader) Float32() float32 {
	if b := r.take(4); b != nil {
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// Bytes reads bytes, which are a copy.
func (r *Reader) Bytes() []byte { return append([]byte(nil), r.take(r.Count(1))...) }

// String reads a string.
func (r *Reader) String() string {
	switch n := r.Uint(); {
	case n == 0:
		return ""
	case n == 1:
		s := string(r.take(r.Count(1)))
		if s == "" {
			r.Fail("an empty string")
		}
		r.strings = append(r.strings, s)
		return s
	case n-2 < uint64(len(r.strings)):
		return r.strings[n-2]
	}
	r.Fail("it refers to a string that is not there")
	return ""
}

// Time reads a wall time.
func (r *Reader) Time() time.Time {
	if !r.Bool() {
		return time.Time{}
	}
	return time.Unix(0, r.Int()).UTC()
}

// Count reads how many things follow, each of at least that many bytes.
func (r *Reader) Count(least int) int {
	n := r.Uint()
	if n > uint64(len(r.data)/least) {
		r.Fail("%d things in %d bytes", n, len(r.data))
		return 0
	}
	return int(n)
}

// Each counts as Count does, and then from 0 on until the things are read, or one cannot be.
func (r *Reader) Each(least int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range r.Count(least) {
			if r.err != nil || !yield(i) {
				return
			}
		}
	}
}

// Room is how many things of at least that many bytes can follow.
func (r *Reader) Room(least int) int { return len(r.data) / least }

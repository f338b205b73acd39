package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Errors of Restore.
var (
	ErrVersion = errors.New("a newer program saved the state")
	ErrDamaged = errors.New("the saved state is damaged")
)

// Reader reads the values of a Writer. After the first value that no Writer writes, it reads zeros, and Err describes
// the value.
type Reader struct {
	data    []byte // not read yet
	strings []string
	err     error
}

// NewReader reads data. It copies strings and bytes; only Section returns a part of data.
func NewReader(data []byte) *Reader { return &Reader{data: data} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Fail reports that the data describe an impossible state.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
	}
	r.data = nil
}

func (r *Reader) take(n int) []byte {
	if n > len(r.data) {
		r.Fail("the data end early")
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
	r.skip(n)
	return v // 0 if it cannot be read
}

// Int reads a number that may be negative.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.data)
	r.skip(n)
	return v // 0 if it cannot be read
}

func (r *Reader) skip(varint int) {
	if varint <= 0 {
		r.Fail("the data end early")
		return
	}
	r.data = r.data[varint:]
}

// Below reads a number below n, such as an index. It returns 0 with an error if the number is not below n.
func (r *Reader) Below(n int) int {
	if n <= 0 {
		r.Fail("a reference to an empty list")
		return 0
	}
	return int(r.upTo(uint64(n) - 1))
}

func (r *Reader) upTo(most uint64) uint64 {
	v := r.Uint()
	if v > most {
		r.Fail("number %d, want at most %d", v, most)
		return 0
	}
	return v
}

// Bool reads one byte.
func (r *Reader) Bool() bool {
	b := r.Byte()
	if b > 1 {
		r.Fail("byte %d, want 0 or 1", b)
	}
	return b == 1
}

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
	r.Fail("a reference to a string that was not written")
	return ""
}

// Time reads a wall time.
func (r *Reader) Time() time.Time {
	if !r.Bool() {
		return time.Time{}
	}
	return time.Unix(0, r.Int()).UTC()
}

// Count reads how many values follow, each of at least so many bytes.
func (r *Reader) Count(least int) int {
	n := r.Uint()
	if n > uint64(len(r.data)/least) {
		r.Fail("%d values in %d bytes", n, len(r.data))
		return 0
	}
	return int(n)
}

// Each reads a count as Count does, and yields 0, 1, … for each of the values until one cannot be read.
func (r *Reader) Each(least int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range r.Count(least) {
			if r.err != nil || !yield(i) {
				return
			}
		}
	}
}

// Section reads a section. Its Data are a part of the Reader's data.
func (r *Reader) Section() Section {
	return Section{Cluster: r.String(), Host: r.String(), Data: r.take(r.Count(1))}
}

// Room returns how many values of at least so many bytes can follow.
func (r *Reader) Room(least int) int { return len(r.data) / least }

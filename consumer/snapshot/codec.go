package snapshot

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// Codec passes over state in one direction: it writes the values that it is given, or sets them to the values that
// were written. One function therefore describes how a state is saved and how it is restored.
type Codec struct {
	Writer *Writer // nil: the Codec reads
	Reader *Reader // nil: the Codec writes
}

// Reading reports whether the Codec sets values.
func (c *Codec) Reading() bool { return c.Reader != nil }

// Fail reports that the data describe an impossible state. It does nothing while writing.
func (c *Codec) Fail(format string, args ...any) {
	if c.Reading() {
		c.Reader.Fail(format, args...)
	}
}

// Failed reports whether a value could not be read.
func (c *Codec) Failed() bool { return c.Reading() && c.Reader.err != nil }

func (c *Codec) Bool(values ...*bool) { each(c, values, (*Writer).Bool, (*Reader).Bool) }

func (c *Codec) String(values ...*string) { each(c, values, (*Writer).String, (*Reader).String) }

// Private passes over strings that a Writer with a Pseudonym replaces. The values stay.
func (c *Codec) Private(what schema.Private, values ...*string) {
	for _, v := range values {
		switch {
		case c.Reading():
			*v = c.Reader.String()
		case c.Writer.Pseudonym == nil || *v == "":
			c.Writer.String(*v)
		default:
			c.Writer.String(c.Writer.Pseudonym(what, *v))
		}
	}
}

func (c *Codec) Time(values ...*time.Time) { each(c, values, (*Writer).Time, (*Reader).Time) }

func (c *Codec) Byte(values ...*byte) {
	for _, v := range values { // as each does, without the indirect calls: it runs for every allocation
		if c.Reading() {
			*v = c.Reader.Byte()
		} else {
			c.Writer.Byte(*v)
		}
	}
}

func (c *Codec) Float32(v *float32) {
	bits := uint64(math.Float32bits(*v))
	c.fixed(&bits, 4)
	*v = math.Float32frombits(uint32(bits))
}

func (c *Codec) Float64(values ...*float64) {
	for _, v := range values {
		bits := math.Float64bits(*v)
		c.fixed(&bits, 8)
		*v = math.Float64frombits(bits)
	}
}

// fixed passes over so many bytes of a number.
func (c *Codec) fixed(v *uint64, bytes int) {
	var data [8]byte
	if c.Reading() {
		copy(data[:], c.Reader.take(bytes))
		*v = binary.LittleEndian.Uint64(data[:])
		return
	}
	binary.LittleEndian.PutUint64(data[:], *v)
	c.Writer.buf = append(c.Writer.buf, data[:bytes]...)
}

func each[T any](c *Codec, values []*T, write func(*Writer, T), read func(*Reader) T) {
	for _, v := range values {
		if c.Reading() {
			*v = read(c.Reader)
		} else {
			write(c.Writer, *v)
		}
	}
}

// Below passes over a number that must be below n, such as an index. It sets 0 after an error.
func (c *Codec) Below(v *int, n int) {
	if c.Reading() {
		*v = c.Reader.Below(n)
	} else {
		c.Writer.Uint(uint64(*v))
	}
}

// Uint passes over numbers. It refuses a number that does not fit into T.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Codec, values ...*T) {
	for _, v := range values {
		if c.Reading() {
			*v = T(c.Reader.upTo(uint64(^T(0))))
		} else {
			c.Writer.Uint(uint64(*v))
		}
	}
}

// Int passes over numbers that may be negative. It refuses a number that does not fit into T.
func Int[T ~int | ~int32 | ~int64](c *Codec, values ...*T) {
	for _, v := range values {
		if !c.Reading() {
			c.Writer.Int(int64(*v))
			continue
		}
		n := c.Reader.Int()
		if *v = T(n); int64(*v) != n {
			c.Fail("number %d has too many bits", n)
		}
	}
}

// List passes over a list. Each value takes at least so many bytes.
func List[T any](c *Codec, all *[]T, least int, value func(*T)) {
	if !c.Reading() {
		c.Writer.Uint(uint64(len(*all)))
		for i := range *all {
			value(&(*all)[i])
		}
		return
	}
	for range c.Reader.Each(least) {
		*all = append(*all, *new(T))
		value(&(*all)[len(*all)-1])
	}
}

// Map passes over a map in the order of its keys. Each entry takes at least so many bytes. A map without entries may
// be nil.
func Map[K comparable, V any](c *Codec, all *map[K]V, least int, compare func(a, b K) int, entry func(*K, *V)) {
	if !c.Reading() {
		c.Writer.Uint(uint64(len(*all)))
		for _, k := range slices.SortedFunc(maps.Keys(*all), compare) {
			v := (*all)[k]
			entry(&k, &v)
		}
		return
	}
	for range c.Reader.Each(least) {
		var k K
		var v V
		entry(&k, &v)
		if _, known := (*all)[k]; known {
			c.Fail("an entry of a map appears twice")
			return
		}
		if *all == nil {
			*all = map[K]V{}
		}
		(*all)[k] = v
	}
}

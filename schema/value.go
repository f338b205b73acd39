package schema

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

var (
	errTooMany  = errors.New("list is longer than the bytes that are left")
	errDepth    = errors.New("nested deeper than 8")
	errShort    = errors.New("string is longer than the bytes that are left")
	errRange    = errors.New("number out of range")
	errHalfNode = errors.New("graph node without a count")
)

// oneByte consumes the next byte if it is between two codes, and returns its distance from the lowest. Most strings,
// lists and numbers of a small batch have one-byte headers, and the library takes several times as long to read them.
func (d *Decoder) oneByte(lowest, highest byte) (int, bool) {
	at := d.at()
	if at >= len(d.data) || d.data[at] < lowest || d.data[at] > highest {
		return 0, false
	}
	_, _ = d.reader.ReadByte()
	return int(d.data[at] - lowest), true
}

// raw returns the next string or binary, borrowed from the message.
func (d *Decoder) raw() ([]byte, error) {
	n, known := d.oneByte(msgpcode.FixedStrLow, msgpcode.FixedStrHigh)
	if !known {
		var err error
		if n, err = d.dec.DecodeBytesLen(); err != nil {
			return nil, err
		}
	}
	n = max(n, 0)
	if n > d.reader.Len() {
		return nil, errShort
	}
	at := d.at()
	_, err := d.reader.Seek(int64(n), io.SeekCurrent)
	return d.data[at : at+n : at+n], err
}

// length returns the length of the next list, 0 for nil. An entry is at least one byte.
func (d *Decoder) length() (int, error) {
	n, known := d.oneByte(msgpcode.FixedArrayLow, msgpcode.FixedArrayHigh)
	if !known {
		var err error
		if n, err = d.dec.DecodeArrayLen(); err != nil {
			return 0, err
		}
	}
	if n > d.reader.Len() {
		return 0, errTooMany
	}
	return max(n, 0), nil
}

// mapLength returns the number of entries of the next map, -1 for nil. An entry is at least two bytes.
func (d *Decoder) mapLength() (int, error) {
	n, err := d.dec.DecodeMapLen()
	if err == nil && n > d.reader.Len()/2 {
		err = errTooMany
	}
	return n, err
}

// at returns the offset of the next byte.
func (d *Decoder) at() int { return len(d.data) - d.reader.Len() }

// word returns the next string, borrowed from the message: a key or a word.
func (d *Decoder) word() ([]byte, error) {
	raw, err := d.raw()
	if len(raw) > maxString {
		return nil, fmt.Errorf("string of %d bytes, at most %d", len(raw), maxString)
	}
	return raw, err
}

func (d *Decoder) str() (string, error) {
	raw, err := d.word()
	if err != nil || len(raw) == 0 {
		return "", err
	}
	if s, ok := d.seen[string(raw)]; ok {
		return s, nil
	}
	if d.seenBytes += len(raw); d.seenBytes > maxSeen {
		clear(d.seen)
		d.seenBytes = len(raw)
	}
	s := string(raw)
	d.seen[s] = s
	return s, nil
}

func (d *Decoder) text(s *string) (err error) {
	*s, err = d.str()
	return err
}

// uint returns the next number. The library reads a negative number as a huge one, so uint rejects it.
func (d *Decoder) uint() (uint64, error) {
	if v, known := d.oneByte(0, msgpcode.PosFixedNumHigh); known {
		return uint64(v), nil
	}
	at := d.at()
	v, err := d.dec.DecodeUint64()
	if v > math.MaxInt64 && d.data[at] != msgpcode.Uint64 {
		return 0, errRange
	}
	return v, err
}

type unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

func readNumber[T unsigned](d *Decoder, to *T) error {
	v, err := d.uint()
	if err != nil {
		return err
	}
	if *to = T(v); uint64(*to) != v {
		return errRange
	}
	return nil
}

func (d *Decoder) numbers(dst *[]uint64) error {
	*dst = (*dst)[:0]
	n, err := d.length()
	if err != nil {
		return err
	}
	if n > maxRows {
		return errTooMany
	}
	for range n {
		v, err := d.uint()
		if err != nil {
			return err
		}
		*dst = append(*dst, v)
	}
	return nil
}

// skip skips one value. The library's own Skip does not limit nesting.
func (d *Decoder) skip(depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	code, err := d.dec.PeekCode()
	if err != nil {
		return err
	}
	values := 0
	switch {
	case msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32:
		n, err := d.mapLength()
		if err != nil {
			return err
		}
		values = 2 * n
	case msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32:
		var err error
		if values, err = d.length(); err != nil {
			return err
		}
	case msgpcode.IsString(code) || msgpcode.IsBin(code):
		_, err := d.raw()
		return err
	default:
		if msgpcode.IsExt(code) {
			_, n, err := d.dec.DecodeExtHeader()
			if err != nil {
				return err
			}
			if n > d.reader.Len() {
				return errShort
			}
			_, err = d.reader.Seek(int64(n), io.SeekCurrent)
			return err
		}
		return d.dec.Skip() // a scalar
	}
	for range values {
		if err := d.skip(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

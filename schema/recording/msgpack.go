package recording

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

var errSummary = errors.New("the summary is malformed")

// packer writes a summary. Writing into memory cannot fail.
type packer struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

func (p *packer) data() []byte { return p.buf.Bytes() }

func (p *packer) mapHeader(entries int) {
	p.enc = msgpack.NewEncoder(&p.buf)
	_ = p.enc.EncodeMapLen(entries)
}

func (p *packer) key(key string) *packer { return p.string(key) }

func (p *packer) text(key, value string) { p.string(key, value) }

func (p *packer) list(length int) *packer {
	_ = p.enc.EncodeArrayLen(length)
	return p
}

func (p *packer) string(values ...string) *packer {
	for _, v := range values {
		_ = p.enc.EncodeString(v)
	}
	return p
}

func (p *packer) uint(values ...uint64) *packer {
	for _, v := range values {
		_ = p.enc.EncodeUint(v)
	}
	return p
}

func (p *packer) int(v int64) *packer {
	_ = p.enc.EncodeInt(v)
	return p
}

// unpacker reads a summary. After the first malformed value it reads zeros. It
// allocates no more than a small multiple of the bytes of the summary.
type unpacker struct {
	in  bytes.Reader
	dec *msgpack.Decoder
	err error
}

func newUnpacker(data []byte) *unpacker {
	u := &unpacker{}
	u.in.Reset(data)
	u.dec = msgpack.NewDecoder(&u.in)
	return u
}

// end returns the first error.
func (u *unpacker) end() error {
	if u.err == nil && u.in.Len() > 0 {
		u.fail(fmt.Errorf("%d bytes too many", u.in.Len()))
	}
	return u.err
}

func (u *unpacker) fail(err error) {
	if err != nil && u.err == nil {
		u.err = fmt.Errorf("%w: %w", errSummary, err)
	}
}

// length checks a length whose entries have at least so many bytes.
func (u *unpacker) length(n int, err error, least int) int {
	u.fail(err)
	if n > u.in.Len()/least {
		u.fail(errors.New("a length is above the bytes that are left"))
	}
	if u.err != nil {
		return 0
	}
	return max(n, 0)
}

func (u *unpacker) mapLength() int {
	if u.err != nil {
		return 0
	}
	n, err := u.dec.DecodeMapLen()
	return u.length(n, err, 2)
}

func (u *unpacker) listLength() int {
	if u.err != nil {
		return 0
	}
	n, err := u.dec.DecodeArrayLen()
	return u.length(n, err, 1)
}

// rows reads a list of rows with at least so many fields.
func rows[T any](u *unpacker, fields int, row func() T) (all []T) {
	for range u.listLength() {
		n := u.listLength()
		if n < fields {
			u.fail(errors.New("a row is too short"))
			return nil
		}
		all = append(all, row())
		for range n - fields {
			u.skip(0)
		}
		if u.err != nil {
			return nil
		}
	}
	return all
}

// string reads a string of at most so many bytes.
func (u *unpacker) string(most int) string {
	if u.err != nil {
		return ""
	}
	n, err := u.dec.DecodeBytesLen()
	n = u.length(n, err, 1)
	if n > most {
		u.fail(fmt.Errorf("a string of %d bytes", n))
	}
	text := make([]byte, min(n, most))
	_, _ = u.in.Read(text)
	return string(text)
}

func (u *unpacker) int() int64 {
	if u.err != nil {
		return 0
	}
	v, err := u.dec.DecodeInt64()
	u.fail(err)
	return v
}

func (u *unpacker) uint() uint64 {
	if u.err != nil {
		return 0
	}
	v, err := u.dec.DecodeUint64()
	u.fail(err)
	return v
}

func (u *unpacker) time() time.Time { return time.Unix(0, u.int()).UTC() }

// shard reads a shard, or the length of something in the block.
func (u *unpacker) shard() int { return u.below(math.MaxInt32) }

// below reads a number up to most.
func (u *unpacker) below(most uint64) int {
	v := u.uint()
	if v > most {
		u.fail(errors.New("a number is above its limit"))
		return 0
	}
	return int(v)
}

const maxDepth = 8

// skip skips one value. The library's own Skip does not limit nesting.
func (u *unpacker) skip(depth int) {
	if u.err != nil {
		return
	}
	code, err := u.dec.PeekCode()
	if u.fail(err); err != nil {
		return
	}
	values := 0
	switch {
	case depth > maxDepth:
		u.fail(errors.New("a value is nested too deeply"))
	case msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32:
		values = 2 * u.mapLength()
	case msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32:
		values = u.listLength()
	default:
		u.fail(u.dec.Skip())
	}
	for range values {
		u.skip(depth + 1)
	}
}

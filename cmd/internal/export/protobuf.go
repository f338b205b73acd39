package export

import (
	"encoding/binary"
	"math"
)

// message is a message in the binary form of Protocol Buffers. Each method appends one field.
type message []byte

// Wire types.
const (
	wireVarint = 0
	wireFixed  = 1 // 8 bytes
	wireBytes  = 2
)

func (m message) tag(field, wire int) message {
	return binary.AppendUvarint(m, uint64(field)<<3|uint64(wire))
}

func (m message) number(field int, n uint64) message {
	return binary.AppendUvarint(m.tag(field, wireVarint), n)
}

func (m message) float(field int, f float64) message {
	return binary.LittleEndian.AppendUint64(m.tag(field, wireFixed), math.Float64bits(f))
}

func (m message) text(field int, s string) message {
	return append(binary.AppendUvarint(m.tag(field, wireBytes), uint64(len(s))), s...)
}

func (m message) part(field int, p message) message {
	return append(binary.AppendUvarint(m.tag(field, wireBytes), uint64(len(p))), p...)
}

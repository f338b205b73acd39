package schema

import (
	"encoding/binary"
	"math/bits"
)

// Column is one attribute of all events of a batch: value i is Base + LE(Width, Data[i]), unsigned. Width 0 has no
// data: every value is Base. An absent column is the zero Column, so it reads as 0.
type Column struct {
	Base  uint64
	Width uint8  // bytes per value: 0, 1, 2, 4 or 8
	Data  []byte // borrowed from the decoded message
}

// At returns value i. The caller keeps i below the batch's event count.
func (c *Column) At(i int) uint64 {
	switch c.Width {
	case 1:
		return c.Base + uint64(c.Data[i])
	case 2:
		return c.Base + uint64(binary.LittleEndian.Uint16(c.Data[2*i:]))
	case 4:
		return c.Base + uint64(binary.LittleEndian.Uint32(c.Data[4*i:]))
	case 8:
		return c.Base + binary.LittleEndian.Uint64(c.Data[8*i:])
	}
	return c.Base
}

// Values returns the first n values. It uses dst if dst is large enough. It is the fast way to read a whole column.
func (c *Column) Values(dst []uint64, n int) []uint64 {
	if cap(dst) < n {
		dst = make([]uint64, n)
	}
	dst = dst[:n]
	base := c.Base
	switch c.Width {
	case 1:
		for i, v := range c.Data[:len(dst)] {
			dst[i] = base + uint64(v)
		}
	case 2:
		data := c.Data[:2*len(dst)]
		for i := range dst {
			dst[i] = base + uint64(binary.LittleEndian.Uint16(data[2*i:]))
		}
	case 4:
		data := c.Data[:4*len(dst)]
		for i := range dst {
			dst[i] = base + uint64(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case 8:
		data := c.Data[:8*len(dst)]
		for i := range dst {
			dst[i] = base + binary.LittleEndian.Uint64(data[8*i:])
		}
	default:
		for i := range dst {
			dst[i] = base
		}
	}
	return dst
}

// below reports whether the first n values are below limit. It compares without adding Base, which could wrap.
func (c *Column) below(limit uint64, n int) bool {
	if c.Base >= limit {
		return false
	}
	room := limit - c.Base
	switch c.Width {
	case 1:
		for _, v := range c.Data {
			if uint64(v) >= room {
				return false
			}
		}
	case 2:
		for i := range n {
			if uint64(binary.LittleEndian.Uint16(c.Data[2*i:])) >= room {
				return false
			}
		}
	case 4:
		for i := range n {
			if uint64(binary.LittleEndian.Uint32(c.Data[4*i:])) >= room {
				return false
			}
		}
	case 8:
		for i := range n {
			if binary.LittleEndian.Uint64(c.Data[8*i:]) >= room {
				return false
			}
		}
	}
	return true
}

// columnBuilder collects one column's values and their range. While all values are equal it stores only the first.
type columnBuilder struct {
	values []uint64
	min    uint64
	max    uint64
}

func (c *columnBuilder) reset() {
	c.values = c.values[:0]
	c.min, c.max = ^uint64(0), 0
}

// add adds value i. The caller adds values in order.
func (c *columnBuilder) add(v uint64, i int) {
	if v == c.min && v == c.max {
		return
	}
	if len(c.values) != i {
		c.fill(i)
	}
	c.min = min(c.min, v)
	c.max = max(c.max, v)
	c.values = append(c.values, v)
}

// addRare adds value i of a rare column. It stores nothing before the first value above 0.
func (c *columnBuilder) addRare(v uint64, i int) {
	if v == 0 && c.max == 0 {
		return
	}
	if c.max == 0 && i > 0 {
		c.min = 0
	}
	c.add(v, i)
}

// fill stores n equal values, because another value follows.
func (c *columnBuilder) fill(n int) {
	for len(c.values) < n {
		c.values = append(c.values, c.min)
	}
}

func (c *columnBuilder) width() uint8 {
	if len(c.values) == 0 {
		return 0
	}
	return widthOf(c.max - c.min)
}

func widthOf(spread uint64) uint8 {
	switch n := bits.Len64(spread); {
	case n == 0:
		return 0
	case n <= 8:
		return 1
	case n <= 16:
		return 2
	case n <= 32:
		return 4
	}
	return 8
}

// appendData appends the values relative to min in width bytes each; width is the result of c.width.
func (c *columnBuilder) appendData(dst []byte, width uint8) []byte {
	low := c.min
	switch width {
	case 1:
		for _, v := range c.values {
			dst = append(dst, byte(v-low))
		}
	case 2:
		for _, v := range c.values {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(v-low))
		}
	case 4:
		for _, v := range c.values {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(v-low))
		}
	case 8:
		for _, v := range c.values {
			dst = binary.LittleEndian.AppendUint64(dst, v-low)
		}
	}
	return dst
}

package nsys

import "strings"

// latest is the largest time that is taken for one, about 36 years.
const latest = 1 << 60

// maxBytes is the least impossible size. No GPU has 256 TiB, and sums of such sizes would overflow.
const maxBytes = 1 << 48

// maxText bounds a text of the export, as schema bounds a string.
const maxText = 4096

// number returns an integer that is not negative. Other values, such as NULL and texts, are unusable.
func number(v any) (uint64, bool) {
	n, ok := v.(int64)
	return uint64(n), ok && n >= 0
}

// bits returns the bits of any integer, and 0 for other values.
func bits(v any) uint64 {
	n, _ := v.(int64)
	return uint64(n)
}

// small returns an integer of 32 bits, and 0 for other values.
func small(v any) uint32 {
	n, ok := number(v)
	if !ok || n > 1<<32-1 {
		return 0
	}
	return uint32(n)
}

// text returns a text of bounded length, and "" for other values.
func text(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case []byte:
		s = string(v)
	}
	return strings.Clone(s[:min(len(s), maxText)])
}

// processBits are the bits of a serialized global id that identify the process.
const processBits = 24

// pidOf returns the pid of a global process or thread id.
func pidOf(global uint64) uint32 { return uint32(global >> processBits & 0xFFFFFF) }

// tidOf returns the tid of a global thread id.
func tidOf(global uint64) uint32 { return uint32(global & 0xFFFFFF) }

package producer

import "github.com/gputap/gputap/bpf"

// Flags of CUDA_ARRAY3D_DESCRIPTOR that affect its memory.
const (
	arrayLayered  = 0x01
	arraySparse   = 0x40 // the program maps memory into it later
	arrayDeferred = 0x80 // same as sparse
)

// arrayBytes returns the size of an array by its descriptor, without the driver's padding, which is unknown. The depth
// of a layered array counts layers; every mipmap level has all of them.
func arrayBytes(a *bpf.ArrayRecord) uint64 {
	if a.Flags&(arraySparse|arrayDeferred) != 0 {
		return 0
	}
	w, h, d := a.Width, max(a.Height, 1), max(a.Depth, 1)
	var bytes uint64
	for level := uint32(0); level < min(max(a.Levels, 1), 64); level++ {
		bytes += texelBytes(w, h, d, a.Format, a.Channels)
		w, h = max(w/2, 1), max(h/2, 1)
		if a.Flags&arrayLayered == 0 {
			d = max(d/2, 1)
		}
	}
	return bytes
}

// texelBytes returns the size of one level. Formats are those of CUarray_format.
func texelBytes(w, h, d uint64, format, channels uint32) uint64 {
	switch {
	case format >= 0x91 && format <= 0x9f: // block-compressed: 4 by 4 texels in 8 or 16 bytes
		block := uint64(16)
		if format <= 0x92 || format == 0x97 || format == 0x98 { // BC1 and BC4
			block = 8
		}
		return (w + 3) / 4 * ((h + 3) / 4) * d * block
	case format == 0xb0: // NV12: a second plane of half the height
		return w * h * d * 3 / 2
	}
	return w * h * d * texel(format, channels)
}

func texel(format, channels uint32) uint64 {
	switch format {
	case 0x01, 0x08: // 8-bit integers
		return uint64(channels)
	case 0x02, 0x09, 0x10: // 16-bit integers, half
		return 2 * uint64(channels)
	case 0x03, 0x0a, 0x20: // 32-bit integers, float
		return 4 * uint64(channels)
	case 0xc0, 0xc3: // normalised integers: the channels are part of the format
		return 1
	case 0xc1, 0xc4, 0xc6, 0xc9:
		return 2
	case 0xc2, 0xc5, 0xc7, 0xca, 0x50:
		return 4
	case 0xc8, 0xcb:
		return 8
	}
	return 4 * uint64(channels)
}

package producer

import (
	"testing"

	"github.com/gputap/gputap/bpf"
)

func TestArrayBytes(t *testing.T) {
	const float, half, byteFormat, bc1, bc7, nv12 = 0x20, 0x10, 0x01, 0x91, 0x9d, 0xb0
	tests := []struct {
		name  string
		array bpf.ArrayRecord
		want  uint64
	}{
		{"one dimension", bpf.ArrayRecord{Width: 100, Format: float, Channels: 4, Levels: 1}, 1600},
		{"two", bpf.ArrayRecord{Width: 100, Height: 10, Format: half, Channels: 2, Levels: 1}, 4000},
		{"three", bpf.ArrayRecord{Width: 10, Height: 10, Depth: 10, Format: byteFormat, Channels: 1, Levels: 1}, 1000},
		{"mipmaps", bpf.ArrayRecord{Width: 64, Height: 64, Format: float, Channels: 4, Levels: 3},
			(64*64 + 32*32 + 16*16) * 16},
		{"mipmaps in three dimensions", bpf.ArrayRecord{Width: 8, Height: 8, Depth: 8, Format: byteFormat, Channels: 1,
			Levels: 2}, 512 + 64},
		{"layers do not get fewer", bpf.ArrayRecord{Width: 8, Height: 8, Depth: 5, Format: byteFormat, Channels: 1,
			Levels: 2, Flags: 1}, 5 * (64 + 16)},
		{"more levels than there can be", bpf.ArrayRecord{Width: 2, Format: byteFormat, Channels: 1, Levels: 1 << 31},
			2 + 63},
		{"sparse", bpf.ArrayRecord{Width: 64, Height: 64, Format: float, Channels: 4, Levels: 1, Flags: 0x40}, 0},
		{"deferred", bpf.ArrayRecord{Width: 64, Height: 64, Format: float, Channels: 4, Levels: 1, Flags: 0x80}, 0},
		{"blocks of 8 bytes", bpf.ArrayRecord{Width: 10, Height: 10, Format: bc1, Channels: 4, Levels: 1}, 9 * 8},
		{"blocks of 16 bytes", bpf.ArrayRecord{Width: 8, Height: 8, Format: bc7, Channels: 4, Levels: 1}, 4 * 16},
		{"two planes", bpf.ArrayRecord{Width: 64, Height: 32, Format: nv12, Channels: 3, Levels: 1}, 64 * 48},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := arrayBytes(&tt.array); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

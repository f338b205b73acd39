package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"

	"github.com/gputap/gputap/schema"
)

const (
	head = "gputap recording\n\x01" // of a file; the last byte is the version of the form
	mark = "\xf5GTB"                // of a block

	headerBytes = len(mark) + 5*4

	// HeadBytes is the length of a recording without blocks.
	HeadBytes = int64(len(head))

	blockBytes   = 1 << 20 // a block is written when its contents have so many bytes
	summaryBytes = 1 << 19 // or its summary has about so many
)

// Limits of a block and of a section.
const (
	maxSummary  = 1 << 20
	maxSubject  = 4096 // a NATS server accepts no longer one by default
	maxName     = 4096 // of a cluster, host, stream or fold
	maxContents = blockBytes + maxSubject + schema.MaxMessageBytes + 64
	maxStored   = maxContents + maxContents/128 + 64 // zstd adds little to bytes that it cannot compress

	MaxSectionBytes = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the fixed part of a block. Its checksum covers the three lengths and the summary, so a header with a valid
// checksum says where the block ends.
type header struct {
	summary, stored, contents uint32 // lengths in bytes
	summarySum, storedSum     uint32 // CRC-32C
}

func (h *header) bytes() int64 { return int64(headerBytes) + int64(h.summary) + int64(h.stored) }

// check returns why no Writer writes such lengths.
func (h *header) check() error {
	if h.summary > maxSummary || h.stored > maxStored || h.contents > maxContents {
		return errors.New("a length in the header is above its limit")
	}
	return nil
}

func (h *header) sum(summary []byte) uint32 {
	var lengths [12]byte
	binary.LittleEndian.PutUint32(lengths[:], h.summary)
	binary.LittleEndian.PutUint32(lengths[4:], h.stored)
	binary.LittleEndian.PutUint32(lengths[8:], h.contents)
	return crc32.Update(crc32.Checksum(lengths[:], castagnoli), castagnoli, summary)
}

// appendBlock appends a block with compressed contents to dst.
func appendBlock(dst, summary, stored []byte, contents int) []byte {
	h := header{summary: uint32(len(summary)), stored: uint32(len(stored)), contents: uint32(contents)}
	dst = append(dst, mark...)
	for _, n := range [...]uint32{
		h.summary, h.stored, h.contents, h.sum(summary), crc32.Checksum(stored, castagnoli),
	} {
		dst = binary.LittleEndian.AppendUint32(dst, n)
	}
	return append(append(dst, summary...), stored...)
}

// parseHeader reads headerBytes bytes. It returns false if they do not begin with the mark.
func parseHeader(data []byte) (h header, marked bool) {
	if string(data[:len(mark)]) != mark {
		return h, false
	}
	for i, to := range [...]*uint32{&h.summary, &h.stored, &h.contents, &h.summarySum, &h.storedSum} {
		*to = binary.LittleEndian.Uint32(data[len(mark)+4*i:])
	}
	return h, true
}

func newCompressor() *zstd.Encoder {
	c, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(blockBytes), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // an option is out of range
	}
	return c
}

// decompressor is created with the first contents to read.
type decompressor struct {
	zstd *zstd.Decoder
	buf  []byte
}

// contents decompresses the contents of a block. They are valid until the next call.
func (d *decompressor) contents(h *header, stored []byte) ([]byte, error) {
	if d.zstd == nil {
		var err error
		if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxContents),
			zstd.WithDecodeAllCapLimit(true)); err != nil {
			return nil, err
		}
	}
	if cap(d.buf) < int(h.contents) {
		d.buf = make([]byte, 0, max(int(h.contents), blockBytes+blockBytes/8))
	}
	contents, err := d.zstd.DecodeAll(stored, d.buf[:0:h.contents])
	if err != nil {
		return nil, fmt.Errorf("decompress the contents: %w", err)
	}
	if len(contents) != int(h.contents) {
		return nil, fmt.Errorf("the contents have %d bytes, and the header says %d", len(contents), h.contents)
	}
	return contents, nil
}

func (d *decompressor) close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}

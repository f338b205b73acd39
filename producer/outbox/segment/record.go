package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gputap/gputap/schema"
)

// HeadBytes is the size of an encoded Head.
const HeadBytes = 48

// BlockBytes is the least room that a file takes.
const BlockBytes = 4 << 10

// MaxBytes bounds the data of a record: twice the largest batch.
const MaxBytes = 2 << 20

var (
	// ErrCorrupt means that no record can be read from there on.
	ErrCorrupt = errors.New("corrupt record")
	// ErrCorruptData is an ErrCorrupt with a good head, which says where the next record is.
	ErrCorruptData = fmt.Errorf("%w behind a good head", ErrCorrupt)
)

// Head stands before the data of a record. Encode sets its first two numbers and DataSum.
type Head struct {
	Sum     uint32 // of the rest of the head
	Bytes   uint32
	Events  uint32
	DataSum uint32
	Seq     uint64
	Closed  int64
	Last    schema.KTime
	Lost    uint64
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// Encode replaces the contents of buf by a record.
func Encode(buf []byte, h Head, data []byte) []byte {
	h.Bytes, h.DataSum = uint32(len(data)), checksum(data)
	buf, _ = binary.Append(buf[:0], binary.LittleEndian, &h)
	binary.LittleEndian.PutUint32(buf, checksum(buf[4:]))
	return append(buf, data...)
}

// ReadHead reads the head at off.
func ReadHead(f io.ReaderAt, off int64) (h Head, err error) {
	raw := make([]byte, HeadBytes)
	if err := readFull(f, raw, off); err != nil {
		return Head{}, err
	}
	_, _ = binary.Decode(raw, binary.LittleEndian, &h)
	if h.Sum != checksum(raw[4:]) || h.Bytes > MaxBytes {
		return Head{}, ErrCorrupt
	}
	return h, nil
}

// Read reads the record at off into buf, which grows to its data and no further, and returns the data also after an
// error: its buffer can be used again.
func Read(f io.ReaderAt, off int64, buf []byte) (Head, []byte, error) {
	h, err := ReadHead(f, off)
	if err != nil {
		return h, buf, err
	}
	buf = slices.Grow(buf[:0], int(h.Bytes))[:h.Bytes]
	err = readFull(f, buf, off+HeadBytes)
	if err == nil && checksum(buf) != h.DataSum {
		err = ErrCorruptData
	}
	return h, buf, err
}

func readFull(f io.ReaderAt, buf []byte, off int64) error {
	_, err := f.ReadAt(buf, off)
	if errors.Is(err, io.EOF) {
		return ErrCorrupt
	}
	return err
}

package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// A segment is one file of records. A record is a head of 48 bytes and Bytes bytes of data, all numbers little endian.
// The first record says whose batches follow: Closed is segmentMagic, Seq the form, the data cluster, host and run
// with zeros between. Every future form begins with such a record. The batches follow in seq order. The ending of a
// file that was closed is a head alone, with Bytes endingMark: Seq is the number of batches, Closed that of events,
// and Last the offset of the ending.
const (
	segmentMagic   = 0x7061747570670a0d
	segmentForm    = 1
	headBytes      = 48
	endingMark     = 1<<32 - 1
	maxRecordBytes = 2 << 20 // twice the largest batch
	blockBytes     = 4 << 10 // least room that a file takes
)

var (
	errCorrupt      = errors.New("corrupt record")
	errCorruptBatch = errors.New("corrupt batch") // its head is good and says where the next record is
	errNewerForm    = errors.New("written by a newer gputap")
)

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// head stands before the data of a record.
type head struct {
	Sum     uint32 // CRC32C of the rest of the head
	Bytes   uint32
	Events  uint32
	DataSum uint32 // CRC32C
	Seq     uint64
	Closed  int64
	Last    schema.KTime
	Lost    uint64
}

func (h *head) encode() []byte {
	raw, _ := binary.Append(nil, binary.LittleEndian, h)
	binary.LittleEndian.PutUint32(raw, checksum(raw[4:]))
	return raw
}

// readHead reads the head at off of a segment whose records end at limit.
func readHead(r io.ReaderAt, off, limit int64) (h head, err error) {
	raw := make([]byte, headBytes)
	if off+headBytes > limit {
		return head{}, errCorrupt
	}
	if _, err := r.ReadAt(raw, off); err != nil {
		return head{}, corruptIfShort(err)
	}
	_, _ = binary.Decode(raw, binary.LittleEndian, &h)
	if h.Sum != checksum(raw[4:]) || h.Bytes > maxRecordBytes && h.Bytes != endingMark {
		return head{}, errCorrupt
	}
	return h, nil
}

func corruptIfShort(err error) error {
	if errors.Is(err, io.EOF) {
		return errCorrupt
	}
	return err
}

// readRecord reads the record at off into buf, which grows to its data and no further. After errCorruptBatch the head
// is good; after errCorrupt its Events are, if they are not 0.
func readRecord(r io.ReaderAt, off, limit int64, buf []byte) (head, []byte, error) {
	h, err := readHead(r, off, limit)
	if err != nil {
		return h, buf, err
	}
	if off+headBytes+int64(h.Bytes) > limit {
		return h, buf, errCorrupt
	}
	buf = slices.Grow(buf[:0], int(h.Bytes))[:h.Bytes]
	if _, err := r.ReadAt(buf, off+headBytes); err != nil {
		return h, buf, corruptIfShort(err)
	}
	if checksum(buf) != h.DataSum {
		return h, buf, errCorruptBatch
	}
	return h, buf, nil
}

// writeRecord writes with one system call, or says why it could not write everything.
func writeRecord(f *os.File, off int64, h head, data []byte) error {
	h.Bytes, h.DataSum = uint32(len(data)), checksum(data)
	raw := h.encode()
	n, err := unix.Pwritev(int(f.Fd()), [][]byte{raw, data}, off)
	if err != nil {
		return &os.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	if n < headBytes+len(data) { // the disk is full: writing the rest says so
		_, err = f.WriteAt(slices.Concat(raw, data)[n:], off+int64(n))
	}
	return err
}

// position is an offset in a segment, with the number of batches and events before it.
type position struct {
	Off     int64
	Batches int
	Events  uint64
}

func (p position) after(bytes, events int) position {
	return position{p.Off + headBytes + int64(bytes), p.Batches + 1, p.Events + uint64(events)}
}

// segment is one file: batches of one kind of one run. The outbox's mu guards the fields from end to sealed.
type segment struct {
	root          *os.Root
	kind          schema.Kind
	number        uint64 // greater than those of earlier runs, and never used again
	earlier       bool   // of an earlier run
	cluster, host string
	run           string
	begin         position // of the first batch

	end    position // behind the last batch
	lost   uint64   // the greatest Lost of its batches
	size   int64    // bytes of the file
	sealed bool     // nothing is appended any more
	ended  bool     // it had an ending when it was opened

	file   *os.File // while it is written or not synced; only the writing goroutine uses it
	synced int64    // bytes that survive a power cut; only the writing goroutine uses it
}

func segmentName(kind schema.Kind, number uint64) string {
	return fmt.Sprintf("%016x.%s", number, kind)
}

func (s *segment) name() string { return segmentName(s.kind, s.number) }

// parseName reports false for a name that no segment has.
func parseName(name string) (kind schema.Kind, number uint64, ok bool) {
	digits, word, _ := strings.Cut(name, ".")
	kind = schema.ParseKind(word)
	_, err := fmt.Sscanf(digits, "%x", &number)
	return kind, number, err == nil && kind != schema.KindNone && name == segmentName(kind, number)
}

// diskBytes counts whole blocks.
func (s *segment) diskBytes() int64 { return (s.size + blockBytes - 1) / blockBytes * blockBytes }

// openSegment opens a segment of an earlier run. If a crash cut it off, torn reports true, end is behind its last good
// batch, and cutOff is the number of events known to be lost. After errCorrupt, end has the counts of the ending, if
// it has one.
func openSegment(root *os.Root, kind schema.Kind, number uint64) (s *segment, cutOff uint64, err error) {
	s = &segment{root: root, kind: kind, number: number, earlier: true, sealed: true}
	f, err := root.OpenFile(s.name(), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return s, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, 0, err
	}
	s.size = info.Size()
	err = s.readHeader(f)
	ended, failed := s.readEnding(f)
	s.ended = ended
	if err != nil || failed != nil || ended {
		return s, 0, errors.Join(err, failed)
	}
	cutOff, err = s.scan(f)
	return s, cutOff, err
}

// torn reports whether a crash cut the segment off.
func (s *segment) torn() bool { return !s.ended && s.end.Off < s.size }

func (s *segment) readHeader(r io.ReaderAt) error {
	h, names, err := readRecord(r, 0, s.size, nil)
	if errors.Is(err, errCorruptBatch) || err == nil && h.Closed != segmentMagic {
		return errCorrupt
	}
	if err == nil && h.Seq != segmentForm {
		return fmt.Errorf("%w: form %d, this program knows form %d", errNewerForm, h.Seq, segmentForm)
	}
	s.cluster, s.run, _ = strings.Cut(string(names), "\x00")
	s.host, s.run, _ = strings.Cut(s.run, "\x00")
	s.begin = position{Off: headBytes + int64(len(names))}
	s.end = s.begin
	return err
}

// readEnding reports whether the segment was closed, and finds its end then.
func (s *segment) readEnding(r io.ReaderAt) (closed bool, err error) {
	off := s.size - headBytes
	h, err := readHead(r, max(off, 0), s.size)
	if h.Bytes != endingMark || int64(h.Last) != off || h.Seq > uint64(off)/headBytes {
		if errors.Is(err, errCorrupt) {
			err = nil
		}
		return false, err
	}
	s.end, s.lost = position{Off: off, Batches: int(h.Seq), Events: uint64(h.Closed)}, h.Lost
	return true, nil
}

// scan finds the end of a segment that was not closed: behind the last good record. A corrupt batch before that is
// found when it is read.
func (s *segment) scan(r io.ReaderAt) (cutOff uint64, err error) {
	var buf []byte
	for at := s.end; ; {
		var h head
		h, buf, err = readRecord(r, at.Off, s.size, buf)
		cutOff += uint64(h.Events)
		switch at = at.after(int(h.Bytes), int(h.Events)); {
		case err == nil:
			s.end, s.lost, cutOff = at, max(s.lost, h.Lost), 0
		case errors.Is(err, errCorrupt):
			return cutOff, nil
		case !errors.Is(err, errCorruptBatch):
			return 0, err
		}
	}
}

// close ends the file behind the last good record.
func (s *segment) close() error {
	f, err := s.root.OpenFile(s.name(), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // all of it was acked or lost meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(s.end.Off), s.writeEnding(f)); err != nil {
		return err
	}
	return f.Sync()
}

func (s *segment) writeEnding(f *os.File) error {
	h := head{
		Bytes: endingMark, Seq: uint64(s.end.Batches), Closed: int64(s.end.Events), Last: schema.KTime(s.end.Off),
		Lost: s.lost,
	}
	_, err := f.WriteAt(h.encode(), s.end.Off)
	return err
}

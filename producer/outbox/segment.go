package outbox

import (
	"encoding/binary"
	"encoding/json"
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

// A segment is a file of records. A record is a head of 48 bytes, all numbers little endian, and its data. The data of
// the first record is a header in JSON; the batches follow in seq order. A later form of segment gets other file names:
// Open leaves names that it does not know alone.
const (
	headBytes      = 48
	maxRecordBytes = 2 << 20 // twice the largest batch
)

var (
	errCorrupt      = errors.New("corrupt record")
	errCorruptBatch = fmt.Errorf("%w behind a good head", errCorrupt)
)

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

type record struct {
	head
	data []byte
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// encode replaces the contents of buf.
func (r *record) encode(buf []byte) []byte {
	r.Bytes, r.DataSum = uint32(len(r.data)), checksum(r.data)
	buf, _ = binary.Append(buf[:0], binary.LittleEndian, &r.head)
	binary.LittleEndian.PutUint32(buf, checksum(buf[4:]))
	return append(buf, r.data...)
}

func readHead(f io.ReaderAt, off int64) (h head, err error) {
	raw := make([]byte, headBytes)
	if err := readFull(f, raw, off); err != nil {
		return head{}, err
	}
	_, _ = binary.Decode(raw, binary.LittleEndian, &h)
	if h.Sum != checksum(raw[4:]) || h.Bytes > maxRecordBytes {
		return head{}, errCorrupt
	}
	return h, nil
}

// readRecord reads the record at off into buf, which grows to its data and no further. After errCorruptBatch the head
// is good, and says where the next record is.
func readRecord(f io.ReaderAt, off int64, buf []byte) (r record, err error) {
	if r.head, err = readHead(f, off); err != nil {
		return record{data: buf}, err
	}
	r.data = slices.Grow(buf[:0], int(r.Bytes))[:r.Bytes]
	err = readFull(f, r.data, off+headBytes)
	if err == nil && checksum(r.data) != r.DataSum {
		err = errCorruptBatch
	}
	return r, err
}

func readFull(f io.ReaderAt, buf []byte, off int64) error {
	_, err := f.ReadAt(buf, off)
	if errors.Is(err, io.EOF) {
		return errCorrupt
	}
	return err
}

// openFile opens a file for reading.
func openFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
}

// writeJSON writes a record at the begin of a file and returns the offset behind it.
func writeJSON(f *os.File, value any) (end int64, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	_, err = f.WriteAt((&record{data: text}).encode(nil), 0)
	return headBytes + int64(len(text)), err
}

func readJSON(f *os.File, value any) (end int64, err error) {
	r, err := readRecord(f, 0, nil)
	if err == nil && json.Unmarshal(r.data, value) != nil {
		err = errCorrupt
	}
	return headBytes + int64(len(r.data)), err
}

// position is a place in the log of a kind, which is its segments one after the other. Batches and Events count from
// the first batch that the directory ever had.
type position struct {
	Segment, Batches, Events uint64
	Off                      int64
}

// after is the position behind a batch.
func (p position) after(bytes, events int) position {
	return position{p.Segment, p.Batches + 1, p.Events + uint64(events), p.Off + headBytes + int64(bytes)}
}

// header begins a segment.
type header struct {
	Cluster, Host   string
	Batches, Events uint64 // of the kind, before this segment
	Lost            uint64 // events that the run had lost by then
}

// segment is one file: batches of one kind of one run. The outbox's mu guards end, bytes and open.
type segment struct {
	header
	kind       schema.Kind
	number     uint64   // 32 bits count the runs, 32 bits the segments of a run
	begin, end position // of the batches; end.Off is not known in a segment of an earlier run
	bytes      int64
	open       bool // batches are appended

	file   *os.File // nil: closed; only the writing goroutine uses it and synced
	synced int64    // bytes that survive a power cut
}

func (s *segment) run() uint64 { return s.number >> 32 }

func (s *segment) name() string { return fmt.Sprintf("%016x.%s", s.number, s.kind) }

// parseName returns nil for a name that no segment has.
func parseName(name string) *segment {
	digits, word, _ := strings.Cut(name, ".")
	s := &segment{kind: schema.ParseKind(word)}
	if _, err := fmt.Sscanf(digits, "%x", &s.number); err != nil || s.kind == schema.KindNone || name != s.name() {
		return nil
	}
	return s
}

// create makes the file of a new segment.
func (s *segment) create(root *os.Root) error {
	f, err := root.OpenFile(s.name(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if s.bytes, err = writeJSON(f, s.header); err != nil {
		f.Close()
		return errors.Join(err, root.Remove(s.name()))
	}
	s.begin = position{s.number, s.Batches, s.Events, s.bytes}
	s.end, s.file, s.open = s.begin, f, true
	return nil
}

// load reads the header of a segment of an earlier run. A segment ends where the next one begins; the last one ends
// behind its last record with a good head.
func (s *segment) load(root *os.Root, next *segment) error {
	f, err := openFile(root, s.name())
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errCorrupt
	}
	s.bytes = info.Size()
	s.begin = position{Segment: s.number}
	if s.begin.Off, err = readJSON(f, &s.header); err != nil {
		return err
	}
	s.begin.Batches, s.begin.Events = s.Batches, s.Events
	s.end = s.begin
	if next != nil {
		s.end = next.begin
		return nil
	}
	for {
		h, err := readHead(f, s.end.Off)
		if errors.Is(err, errCorrupt) {
			return nil
		}
		if err != nil {
			return err
		}
		s.end, s.Lost = s.end.after(int(h.Bytes), int(h.Events)), max(s.Lost, h.Lost)
	}
}

package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// A segment is one file of the outbox: batches of one kind of one run, in seq order. All numbers are
// little endian, all checksums CRC32C.
//
//	beginning  "gputap", form (uint16), checksum of what follows, its bytes (uint16), cluster, host and run, zeros between;
//	           form 1 has no run
//	record     a head of 40 bytes, the batch
//	ending     a head whose bytes are allOnes: how many batches and events the segment holds. A file without one was
//	           not closed: a crash, or it is still written
//
// A head: checksum of the rest of it, bytes and events of the batch, its checksum, seq, wall time at which it was closed
// (ns), time of its last event. Of an ending: batches as seq, events as wall time, its own offset as time; programs that kept no
// debts wrote what the run had lost before its last batch, the low half as events and the high one as the batch's checksum.
const (
	segmentMagic   = "gputap"
	segmentForm    = 2
	nextForm       = 4 // two bits from each before it, as each later one must be
	farthestForm   = 7
	beginBytes     = len(segmentMagic) + 2 + 4 + 2
	headBytes      = 40
	allOnes        = 1<<32 - 1
	maxRecordBytes = 2 << 20 // twice the largest batch
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errDamaged      = errors.New("not what was written")
	errDamagedBatch = errors.New("the batch is not what was written") // its head is, and says where the next one is
	errNewerForm    = errors.New("written by a newer gputap")
)

// origin is whose batches a segment holds: what their subject is made of.
type origin struct{ cluster, host string }

// segment is one file. What end says is guarded by the spool's mu until the segment is sealed.
type segment struct {
	root    *os.Root // in which it is
	name    string
	number  uint64
	origin  origin
	run     string
	lost    uint64 // by the run, as its last batch tells; 0 if a program wrote it that keeps debts
	earlier bool   // of an earlier run
	cutOff  bool   // and has no ending
	stuck   bool   // it could not be removed
	sealed  bool   // nothing is added any more
	begin   mark   // its first record
	end     mark   // behind its last
	bytes   int64  // of the file
	synced  int64  // bytes that are on the disk; only the writing goroutine
}

// path is for people.
func (s *segment) path() string { return filepath.Join(s.root.Name(), s.name) }

// mark is a record in a segment, and how much stands before it there.
type mark struct {
	seg     *segment
	off     int64
	batches int
	events  uint64
}

// behind is the mark after a record.
func (p mark) behind(bytes, events int) mark {
	return mark{p.seg, p.off + headBytes + int64(bytes), p.batches + 1, p.events + uint64(events)}
}

// recordHead is what stands before a batch.
type recordHead struct {
	bytes  uint32
	events uint32
	sum    uint32
	seq    uint64
	at     int64
	last   schema.KTime
}

func (h *recordHead) put(dst []byte) {
	le := binary.LittleEndian
	le.PutUint32(dst[4:], h.bytes)
	le.PutUint32(dst[8:], h.events)
	le.PutUint32(dst[12:], h.sum)
	le.PutUint64(dst[16:], h.seq)
	le.PutUint64(dst[24:], uint64(h.at))
	le.PutUint64(dst[32:], uint64(h.last))
	le.PutUint32(dst, crc32.Checksum(dst[4:headBytes], castagnoli))
}

func (h *recordHead) get(src []byte) (ok bool) {
	le := binary.LittleEndian
	*h = recordHead{
		bytes: le.Uint32(src[4:]), events: le.Uint32(src[8:]), sum: le.Uint32(src[12:]),
		seq: le.Uint64(src[16:]), at: int64(le.Uint64(src[24:])), last: schema.KTime(le.Uint64(src[32:])),
	}
	return le.Uint32(src) == crc32.Checksum(src[4:headBytes], castagnoli)
}

// beginning is the first bytes of a segment.
func beginning(o origin, run string) []byte {
	le := binary.LittleEndian
	b := le.AppendUint16([]byte(segmentMagic), segmentForm)
	names := strings.Join([]string{o.cluster, o.host, run}, "\x00")
	body := append(le.AppendUint16(nil, uint16(len(names))), names...)
	return append(le.AppendUint32(b, crc32.Checksum(body, castagnoli)), body...)
}

// readBeginning finds whose batches a segment holds and where they begin.
func (s *segment) readBeginning(r io.ReaderAt) error {
	var fixed [beginBytes]byte
	if _, err := r.ReadAt(fixed[:], 0); err != nil {
		return damagedAtEnd(err)
	}
	le := binary.LittleEndian
	sizes := len(segmentMagic)
	if string(fixed[:sizes]) != segmentMagic {
		return errDamaged
	}
	// One bit from this form, or beyond the farthest, is no newer gputap's, but a change: the checksum says what the rest is.
	if form := le.Uint16(fixed[sizes:]); form >= nextForm && form <= farthestForm && bits.OnesCount16(form^segmentForm) > 1 {
		return fmt.Errorf("%w: form %d, this one knows %d", errNewerForm, form, segmentForm)
	}
	names := make([]byte, le.Uint16(fixed[beginBytes-2:]))
	if _, err := r.ReadAt(names, int64(beginBytes)); err != nil {
		return damagedAtEnd(err)
	}
	sum := crc32.Checksum(fixed[beginBytes-2:], castagnoli)
	cluster, rest, found := strings.Cut(string(names), "\x00")
	if crc32.Update(sum, castagnoli, names) != le.Uint32(fixed[sizes+2:]) || !found {
		return errDamaged
	}
	host, run, _ := strings.Cut(rest, "\x00")
	s.origin, s.run = origin{cluster, host}, run
	s.begin = mark{seg: s, off: int64(beginBytes + len(names))}
	s.end = s.begin
	return nil
}

// damagedAtEnd makes of an end that comes too early what it means: not all was written.
func damagedAtEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errDamaged
	}
	return err
}

// readHead reads the head at off of a segment whose records end at limit.
func readHead(r io.ReaderAt, off, limit int64) (h recordHead, err error) {
	var raw [headBytes]byte
	if off+headBytes > limit {
		return h, errDamaged
	}
	if _, err := r.ReadAt(raw[:], off); err != nil {
		return h, damagedAtEnd(err)
	}
	if !h.get(raw[:]) || h.bytes > maxRecordBytes && h.bytes != allOnes {
		return recordHead{}, errDamaged
	}
	return h, nil
}

// readRecord reads the record at off into buf, which grows to the batch and no further. After
// errDamagedBatch the head is good.
func readRecord(r io.ReaderAt, off, limit int64, buf []byte) (recordHead, []byte, error) {
	h, err := readHead(r, off, limit)
	if err != nil {
		return h, buf, err
	}
	if h.bytes == allOnes || off+headBytes+int64(h.bytes) > limit {
		return h, buf, errDamaged
	}
	buf = slices.Grow(buf[:0], int(h.bytes))[:h.bytes]
	if _, err := r.ReadAt(buf, off+headBytes); err != nil {
		return h, buf, damagedAtEnd(err)
	}
	if crc32.Checksum(buf, castagnoli) != h.sum {
		return h, buf, errDamagedBatch
	}
	return h, buf, nil
}

// readEnding finds the end of a segment that was closed.
func (s *segment) readEnding(r io.ReaderAt, size int64) (sealed bool, err error) {
	off := size - headBytes
	if off < s.begin.off {
		return false, nil
	}
	h, err := readHead(r, off, size)
	if errors.Is(err, errDamaged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if h.bytes != allOnes || int64(h.last) != off || h.seq > uint64(off)/headBytes {
		return false, nil
	}
	s.end = mark{seg: s, off: off, batches: int(h.seq), events: uint64(h.at)}
	if lost := uint64(h.sum)<<32 | uint64(h.events); lost != 1<<64-1 { // they knew
		s.lost = lost
	}
	return true, nil
}

// scan finds the end of a segment that was not closed: behind its last good record. A batch that was
// changed between good ones is none of the end's business. torn says how many events were seen to be cut off.
func (s *segment) scan(r io.ReaderAt, size int64) (torn uint64, err error) {
	var buf []byte
	good, doubt := s.end, uint64(0) // doubt: events of changed batches since the last good one
	for at := good; at.off < size; {
		var h recordHead
		h, buf, err = readRecord(r, at.off, size, buf)
		switch {
		case err == nil:
			at = at.behind(int(h.bytes), int(h.events))
			good, doubt = at, 0
			continue
		case errors.Is(err, errDamagedBatch):
			at = at.behind(int(h.bytes), int(h.events))
			doubt += uint64(h.events)
			continue
		case !errors.Is(err, errDamaged):
			return 0, err
		}
		if h.bytes != allOnes {
			doubt += uint64(h.events) // of a whole head before half a batch
		}
		break
	}
	s.end = good
	return doubt, nil
}

// openSegment reads what an earlier run left. Its records are not read when it was closed. torn says
// that its tail is cut off, with the events that were seen there: until it is closed it is so at each start.
func openSegment(root *os.Root, name string, number uint64) (s *segment, torn bool, events uint64, err error) {
	s = &segment{root: root, name: name, number: number, earlier: true, sealed: true}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return s, false, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, false, 0, err
	}
	s.bytes = info.Size()
	if err := s.readBeginning(f); err != nil {
		_, _ = s.readEnding(f, s.bytes) // how much is lost with it
		return s, false, 0, err
	}
	if sealed, err := s.readEnding(f, s.bytes); sealed || err != nil {
		return s, false, 0, err
	}
	s.cutOff = true
	if events, err = s.scan(f, s.bytes); err != nil {
		return s, false, 0, err
	}
	return s, s.end.off < s.bytes, events, nil
}

// sync has what an earlier run wrote outlive Linux, if the disk can.
func (s *segment) sync() {
	if f, err := s.root.OpenFile(s.name, os.O_RDONLY|unix.O_NOFOLLOW, 0); err == nil {
		_ = f.Sync()
		f.Close()
	}
}

// close ends a segment that was cut off.
func (s *segment) close() error {
	f, err := s.root.OpenFile(s.name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(s.end.off); err != nil {
		return err
	}
	return s.writeEnding(f)
}

func (s *segment) writeEnding(f *os.File) error {
	var raw [headBytes]byte
	h := recordHead{bytes: allOnes, seq: uint64(s.end.batches), at: int64(s.end.events), last: schema.KTime(s.end.off)}
	h.put(raw[:])
	_, err := f.WriteAt(raw[:], s.end.off)
	return err
}

// writeRecord writes a batch at off in one call, or says why it could not be written whole.
func writeRecord(f *os.File, off int64, e *encoded) error {
	var raw [headBytes]byte
	h := recordHead{
		bytes: uint32(len(e.data)), events: uint32(e.events), sum: crc32.Checksum(e.data, castagnoli), seq: e.seq, at: e.at, last: e.last,
	}
	h.put(raw[:])
	n, err := unix.Pwritev(int(f.Fd()), [][]byte{raw[:], e.data}, off)
	if err != nil {
		return &os.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	if whole := headBytes + len(e.data); n < whole { // a full disk: the rest says so
		_, err = f.WriteAt(slices.Concat(raw[:], e.data)[n:], off+int64(n))
	}
	return err
}

package analysis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/gputap/gputap/schema"
)

// change is memory of a process that became live, or that was freed.
type change struct {
	at    schema.KTime
	bytes uint64
	ptr   uint64
	id    uint32 // of the allocation, from 1 on
	group uint32 // index into Groups; with the bit freed
}

// freed marks a change that ends the life of an allocation.
const freed = 1 << 31

const (
	changeBytes = 32
	blockLen    = 4096 // changes of one block of the file
)

// held is how many changes are in memory.
func (p *Process) held() int { return len(p.sorted) + len(p.late) }

// merge returns the changes in memory in order. Of equal times, a late one comes last, as its event did.
func (p *Process) merge() []change {
	if len(p.late) == 0 {
		return p.sorted
	}
	slices.SortStableFunc(p.late, func(a, b change) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	all, late := make([]change, 0, p.held()), p.late
	for _, c := range p.sorted {
		for len(late) > 0 && late[0].at < c.at {
			all, late = append(all, late[0]), late[1:]
		}
		all = append(all, c)
	}
	p.sorted, p.late = append(all, late...), p.late[:0]
	return p.sorted
}

// spill moves the changes in memory to the file.
func (p *Process) spill(to *runFile) error {
	r, err := to.write(p.merge())
	p.runs = append(p.runs, r)
	p.sorted, p.late = p.sorted[:0], p.late[:0]
	return err
}

// run is changes in order in the file.
type run struct{ offset, bytes int64 }

// runFile is a temporary file without a name. It is made when it is needed.
type runFile struct {
	dir  string
	file *os.File
	end  int64
	raw  []byte
	out  []byte
}

func (f *runFile) close() {
	if f.file != nil {
		_ = f.file.Close() // nobody reads it any more
	}
}

// write appends changes in blocks: the length of the compressed block, then the block.
func (f *runFile) write(changes []change) (r run, err error) {
	if f.file == nil {
		if f.file, err = os.CreateTemp(f.dir, "gputap-changes-*"); err != nil {
			return r, err
		}
		if err := os.Remove(f.file.Name()); err != nil {
			return r, err
		}
	}
	r.offset = f.end
	for block := range slices.Chunk(changes, blockLen) {
		f.raw = f.raw[:0]
		for i := range block {
			f.raw = block[i].append(f.raw)
		}
		packed := s2.Encode(f.out, f.raw)
		f.out = packed[:cap(packed)]
		head := binary.LittleEndian.AppendUint32(f.raw[:0], uint32(len(packed)))
		if _, err := f.file.Write(append(head, packed...)); err != nil {
			return r, err
		}
		f.end += int64(4 + len(packed))
	}
	r.bytes = f.end - r.offset
	return r, nil
}

func (c *change) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(c.at))
	to = binary.LittleEndian.AppendUint64(to, c.bytes)
	to = binary.LittleEndian.AppendUint64(to, c.ptr)
	to = binary.LittleEndian.AppendUint32(to, c.id)
	return binary.LittleEndian.AppendUint32(to, c.group)
}

// source gives the changes of one run, or of those in memory.
type source struct {
	from   *bufio.Reader // nil: in memory
	block  []change
	buf    []change // of block
	packed []byte
	raw    []byte
	err    error
}

// fill makes block not empty, unless there are no more changes.
func (s *source) fill() bool {
	if len(s.block) > 0 || s.from == nil || s.err != nil {
		return len(s.block) > 0
	}
	var length [4]byte
	if _, err := io.ReadFull(s.from, length[:]); err != nil {
		if err != io.EOF {
			s.err = err
		}
		return false
	}
	n := int(binary.LittleEndian.Uint32(length[:]))
	s.packed = slices.Grow(s.packed[:0], n)[:n]
	if _, s.err = io.ReadFull(s.from, s.packed); s.err != nil {
		return false
	}
	if s.raw, s.err = s2.Decode(s.raw[:cap(s.raw)], s.packed); s.err != nil {
		return false
	}
	s.buf = slices.Grow(s.buf[:0], blockLen)
	for b := s.raw; len(b) >= changeBytes; b = b[changeBytes:] {
		s.buf = append(s.buf, change{schema.KTime(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:]),
			binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint32(b[24:]), binary.LittleEndian.Uint32(b[28:])})
	}
	s.block = s.buf
	return len(s.block) > 0
}

// each calls visit with all changes of the process in order, until it returns false.
func (p *Process) each(visit func(*change) bool) error {
	var sources []*source
	for _, r := range p.runs {
		section := io.NewSectionReader(p.journal.file.file, r.offset, r.bytes)
		sources = append(sources, &source{from: bufio.NewReaderSize(section, 64<<10)})
	}
	sources = append(sources, &source{block: p.merge()})
	sources = slices.DeleteFunc(sources, func(s *source) bool { return s.err == nil && !s.fill() })
	for len(sources) > 0 {
		first, until := next(sources)
		s := sources[first]
		for s.fill() && s.block[0].at <= until {
			c := &s.block[0]
			s.block = s.block[1:]
			if !visit(c) {
				return nil
			}
		}
		if s.err != nil {
			return fmt.Errorf("read changes of memory from the temporary file: %w", s.err)
		}
		if len(s.block) == 0 {
			sources = slices.Delete(sources, first, first+1)
		}
	}
	return nil
}

// next returns the source with the earliest change, of equal ones the first, and up to which time its changes come
// before those of the others. All sources have a change.
func next(sources []*source) (first int, until schema.KTime) {
	for i, s := range sources {
		if s.block[0].at < sources[first].block[0].at {
			first = i
		}
	}
	until = ^schema.KTime(0)
	for i, s := range sources {
		switch at := s.block[0].at; {
		case i == first:
		case i > first: // of equal times, the earlier run comes first
			until = min(until, at)
		default:
			until = min(until, at-1)
		}
	}
	return first, until
}

package analysis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

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
	blockHead = 8
	blockLen  = 4096 // changes of one block of the file
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

// run is changes in order in the file.
type run struct{ offset, bytes int64 }

// runFile is a temporary file without a name. It is made when it is needed.
type runFile struct {
	dir    string
	file   *os.File
	end    int64
	out    []byte // reused
	values columns
}

func (f *runFile) close() {
	if f.file != nil {
		_ = f.file.Close() // nobody reads it any more
	}
}

// write appends changes in blocks: the lengths of the block in changes and in bytes, then the block.
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
		out := f.values.append(append(f.out[:0], make([]byte, blockHead)...), block)
		binary.LittleEndian.PutUint32(out, uint32(len(block)))
		binary.LittleEndian.PutUint32(out[4:], uint32(len(out)-blockHead))
		if _, err := f.file.Write(out); err != nil {
			return r, err
		}
		f.end += int64(len(out))
		f.out = out
	}
	r.bytes = f.end - r.offset
	return r, nil
}

// source gives the changes of one run, or of those in memory.
type source struct {
	from  *bufio.Reader // nil: in memory
	block []change
	buf   []change // of block
	raw   []byte
	read  columns
	err   error
}

// fill makes block not empty, unless there are no more changes.
func (s *source) fill() bool {
	if len(s.block) > 0 || s.from == nil || s.err != nil {
		return len(s.block) > 0
	}
	var head [blockHead]byte
	if _, err := io.ReadFull(s.from, head[:]); err != nil {
		if err != io.EOF {
			s.err = err
		}
		return false
	}
	changes, n := int(binary.LittleEndian.Uint32(head[:])), int(binary.LittleEndian.Uint32(head[4:]))
	s.raw, s.buf = slices.Grow(s.raw[:0], n)[:n], slices.Grow(s.buf[:0], changes)[:changes]
	if _, s.err = io.ReadFull(s.from, s.raw); s.err != nil {
		return false
	}
	if !s.read.read(s.raw, s.buf) {
		s.err = io.ErrUnexpectedEOF
		return false
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

package recording

import (
	"errors"
	"fmt"
	"iter"
	"time"
)

// Section is the state of a fold for one host before the first recorded message of a shard.
type Section struct {
	Fold          string
	Form          uint64 // version of the form of Data
	Shard         int
	Sequence      uint64    // Data cover the stream of the shard up to this message
	Stored        time.Time // when NATS stored that message; zero: unknown
	Cluster, Host string    // both "": what belongs to no host
	Data          []byte
}

// part is a piece of a section in one block.
type part struct {
	section Section // without Data
	at      int     // offset of the piece in the section
	total   int     // bytes of the section
	bytes   int     // of the piece
}

const partFields = 10

func (p *part) encode(to *packer) {
	s := &p.section
	to.list(partFields).string(s.Fold).uint(s.Form, uint64(s.Shard), s.Sequence)
	to.int(nanoseconds(s.Stored)).string(s.Cluster, s.Host)
	to.uint(uint64(p.at), uint64(p.total), uint64(p.bytes))
}

func (u *unpacker) part() part {
	return part{
		section: Section{
			Fold: u.string(maxName), Form: u.uint(), Shard: u.shard(), Sequence: u.uint(),
			Stored: u.optionalTime(), Cluster: u.string(maxName), Host: u.string(maxName),
		},
		at: u.below(MaxSectionBytes), total: u.below(MaxSectionBytes), bytes: u.below(maxContents),
	}
}

// same reports whether both are pieces of one section.
func (p *part) same(to *part) bool {
	a, b := &p.section, &to.section
	return a.Fold == b.Fold && a.Form == b.Form && a.Shard == b.Shard && a.Sequence == b.Sequence &&
		a.Cluster == b.Cluster && a.Host == b.Host && p.total == to.total
}

// AddSection appends a section of state. All sections come before AddStreams.
func (w *Writer) AddSection(s Section) error {
	if len(s.Data) > MaxSectionBytes || max(len(s.Fold), len(s.Cluster), len(s.Host)) > maxName {
		return fmt.Errorf("record the state of host %q: %d bytes, at most %d", s.Host, len(s.Data), MaxSectionBytes)
	}
	rest := s.Data
	s.Data = nil
	for p := (part{section: s, total: len(rest)}); ; p.at += p.bytes {
		p.bytes = min(len(rest), blockBytes-len(w.contents))
		w.contents = append(w.contents, rest[:p.bytes]...)
		w.block.Type = TypeState
		w.block.parts = append(w.block.parts, p)
		w.summary += 64 + len(s.Fold) + len(s.Cluster) + len(s.Host)
		rest = rest[p.bytes:]
		if len(w.contents) >= blockBytes || w.summary >= summaryBytes {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if len(rest) == 0 {
			return nil
		}
	}
}

// State yields the sections of state. Data are the caller's. A *Damage error reports a damaged block, and sections are
// missing then; the next ones follow.
func (r *Reader) State() iter.Seq2[Section, error] {
	return func(yield func(Section, error) bool) {
		j := joiner{}
		for b, err := range r.walk(func(b *Block) bool { return b.Type == TypeState }) {
			if err == nil && b.Type != TypeState {
				return // of what follows, nothing is state
			}
			if err == nil {
				err = j.block(&b.Block, b.contents, func(s Section) bool { return yield(s, nil) })
			}
			if errors.Is(err, errStop) || err != nil && !yield(Section{}, err) {
				return
			}
		}
	}
}

// errStop means that the caller of an iterator has stopped it.
var errStop = errors.New("stopped")

// joiner joins the pieces of sections.
type joiner struct {
	first part // of the section at hand
	data  []byte
}

func (j *joiner) block(b *Block, contents []byte, yield func(Section) bool) error {
	for i := range b.parts {
		p := &b.parts[i]
		if p.bytes > len(contents) {
			return &Damage{b.Offset, b.Bytes, "the contents are shorter than the sections in the summary"}
		}
		piece := contents[:p.bytes]
		contents = contents[p.bytes:]
		if p.at == 0 {
			j.first, j.data = *p, nil
		}
		if !p.same(&j.first) || p.at != len(j.data) || p.at+p.bytes > p.total {
			j.first = part{} // a piece is missing: the reader has reported the damage
			continue
		}
		j.data = append(j.data, piece...)
		if len(j.data) == p.total {
			s := p.section
			s.Data, j.data, j.first = j.data, nil, part{}
			if !yield(s) {
				return errStop
			}
		}
	}
	return nil
}

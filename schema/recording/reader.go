package recording

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
)

// ErrNotRecording is wrapped by the error for a file that is not a recording.
var ErrNotRecording = errors.New("not a recording of gputap")

// Damage is the error for bytes of a recording that are skipped.
type Damage struct {
	Offset, Bytes int64
	Reason        string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("damaged recording: skipped %d bytes at offset %d: %s", d.Bytes, d.Offset, d.Reason)
}

// Reader reads a recording from a file, which a Writer may be extending. Each of its iterators begins at the beginning
// of the file and ends where the file ended when it began. A *Damage error is not the end: go on to get what follows.
// Every other error is the last item.
type Reader struct {
	file   io.ReaderAt
	size   func() (int64, error)
	closer io.Closer

	decompressor decompressor
	fixed        [headerBytes]byte
	summary      []byte
	stored       []byte
}

// Open opens a recording.
func Open(path string) (*Reader, error) {
	file, err := OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("open the recording: %w", err)
	}
	if err := checkHead(file, path); err != nil {
		_ = file.Close()
		return nil, err
	}
	return newReader(file), nil
}

var (
	errDirectory  = errors.New("it is a directory; name a file in it, such as run.gputap or report.sqlite")
	errNotRegular = errors.New("it is not a regular file; write it into a file first, and name that file")
)

// OpenFile opens a regular file to read it. It refuses others before it opens them: the open of a named pipe without a
// writer blocks for ever, and readers of recordings seek.
func OpenFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errDirectory}
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return os.Open(path)
}

func newReader(file *os.File) *Reader {
	size := func() (int64, error) {
		info, err := file.Stat()
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
	return &Reader{file: file, size: size, closer: file}
}

func checkHead(file io.ReaderAt, path string) error {
	var first [len(head)]byte
	n, err := file.ReadAt(first[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("open the recording: %w", err)
	}
	if string(first[:n]) == head {
		return nil
	}
	last := len(head) - 1
	if n == len(head) && string(first[:last]) == head[:last] {
		return fmt.Errorf("open the recording: %s has form %d, and this program reads form %d: use a newer gputap",
			path, first[last], head[last])
	}
	return fmt.Errorf("open the recording: %s: %w", path, ErrNotRecording)
}

// Close closes the file.
func (r *Reader) Close() error {
	r.decompressor.close()
	return r.closer.Close()
}

// Blocks yields the summary of each block and checks all bytes of the file.
func (r *Reader) Blocks() iter.Seq2[*Block, error] {
	return func(yield func(*Block, error) bool) {
		for b, err := range r.walk(func(*Block) bool { return true }) {
			if !yield(&b.Block, err) {
				return
			}
		}
	}
}

// Summaries yields the summary of each block. It does not read or check the contents.
func (r *Reader) Summaries() iter.Seq2[*Block, error] {
	return func(yield func(*Block, error) bool) {
		for b, err := range r.walk(func(*Block) bool { return false }) {
			if !yield(&b.Block, err) {
				return
			}
		}
	}
}

// Streams returns the selection, and the streams that the file records.
func (r *Reader) Streams() (Selection, []Stream, error) {
	var found Recorded
	for b, err := range r.walk(func(*Block) bool { return false }) {
		if _, isDamage := errors.AsType[*Damage](err); isDamage {
			continue // Blocks and Messages report it
		}
		if err != nil {
			return found.Selection, found.Streams, err
		}
		found.add(&b.Block)
	}
	return found.Selection, found.Streams, nil
}

// Messages yields the selected messages in the order of the file. Data are valid until the next message.
func (r *Reader) Messages(f Filter) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		selected := func(b *Block) bool { return b.Type == TypeMessages && f.mayMatch(b) }
		for b, err := range r.walk(selected) {
			if err != nil {
				if !yield(Message{}, err) {
					return
				}
				continue
			}
			in, m := contents{rest: b.contents}, Message{}
			for len(in.rest) > 0 {
				if err := in.next(&m); err != nil {
					if !yield(Message{}, &Damage{b.Offset, b.Bytes, err.Error()}) {
						return
					}
					break
				}
				if f.matches(&m) && !yield(m, nil) {
					return
				}
			}
		}
	}
}

// walked is a block. It has contents only if walk read them.
type walked struct {
	Block
	contents []byte
}

// walk yields the blocks and the damages of the file. It reads and checks the contents of wanted blocks.
func (r *Reader) walk(wanted func(*Block) bool) iter.Seq2[*walked, error] {
	return func(yield func(*walked, error) bool) {
		size, err := r.size()
		for at := int64(len(head)); err == nil && at < size; {
			b, h, bad := r.blockAt(at, size)
			if bad != nil {
				var next int64
				if next, err = r.nextBlock(at+1, size); err != nil {
					break
				}
				if !yield(&walked{}, &Damage{at, next - at, bad.Error()}) {
					return
				}
				at = next
				continue
			}
			w := &walked{Block: *b}
			if wanted(b) {
				w.contents, err = r.contents(b, &h)
			}
			at += b.Bytes
			damage, isDamage := errors.AsType[*Damage](err)
			switch {
			case isDamage:
				if err = nil; !yield(&walked{}, damage) {
					return
				}
			case err == nil && !yield(w, nil):
				return
			}
		}
		if err != nil {
			yield(&walked{}, fmt.Errorf("read the recording: %w", err))
		}
	}
}

var (
	errNoBlock = errors.New("no block begins here")
	errEnds    = errors.New("the file ends within a block: it is being written, or its writer was killed")
	errSum     = errors.New("the checksum differs")
)

// blockAt reads the summary of the block at an offset.
func (r *Reader) blockAt(at, size int64) (*Block, header, error) {
	if size-at < int64(headerBytes) {
		return nil, header{}, errEnds
	}
	if _, err := r.file.ReadAt(r.fixed[:], at); err != nil {
		return nil, header{}, err
	}
	h, marked := parseHeader(r.fixed[:])
	if !marked {
		return nil, h, errNoBlock
	}
	if err := h.check(); err != nil {
		return nil, h, err
	}
	if at+h.bytes() > size {
		return nil, h, errEnds
	}
	r.summary = sized(r.summary, int(h.summary))
	if _, err := r.file.ReadAt(r.summary, at+int64(headerBytes)); err != nil {
		return nil, h, err
	}
	if h.sum(r.summary) != h.summarySum {
		return nil, h, errSum
	}
	b, err := decodeSummary(r.summary)
	if err != nil {
		return nil, h, err
	}
	b.Offset, b.Bytes = at, h.bytes()
	return b, h, nil
}

// contents reads the contents of a block. They are valid until the next call.
func (r *Reader) contents(b *Block, h *header) ([]byte, error) {
	r.stored = sized(r.stored, int(h.stored))
	if _, err := r.file.ReadAt(r.stored, b.Offset+int64(headerBytes)+int64(h.summary)); err != nil {
		return nil, err
	}
	if crc32.Checksum(r.stored, castagnoli) != h.storedSum {
		return nil, &Damage{b.Offset, b.Bytes, errSum.Error()}
	}
	data, err := r.decompressor.contents(h, r.stored)
	if err != nil {
		return nil, &Damage{b.Offset, b.Bytes, err.Error()}
	}
	return data, nil
}

func sized(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n)
	}
	return buf[:n]
}

const searchBytes = 64 << 10

// nextBlock returns the offset of the next readable block, or the end of the file.
func (r *Reader) nextBlock(at, size int64) (int64, error) {
	buf := make([]byte, searchBytes)
	for at < size {
		n, err := r.file.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		i := bytes.Index(buf[:n], []byte(mark))
		if i < 0 {
			if at+int64(n) >= size || n < len(mark) {
				return size, nil
			}
			at += int64(n - len(mark) + 1)
			continue
		}
		at += int64(i)
		if _, _, err := r.blockAt(at, size); err == nil {
			return at, nil
		}
		at++
	}
	return size, nil
}

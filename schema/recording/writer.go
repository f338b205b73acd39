package recording

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/gputap/gputap/schema"
)

// Writer writes a recording.
type Writer struct {
	to     io.Writer
	file   *os.File // nil if Append did not open it
	offset int64    // end of the last written block
	err    error    // of the first failed write: the file ends there

	contents []byte // of the next block
	block    Block  // its summary
	summary  int    // about the bytes of its encoded summary
	subjects map[string]subject
	hosts    map[Host]struct{}
	out      []byte

	zstd    *zstd.Encoder
	decoder *schema.Decoder
	batch   schema.Batch
	last    map[int]uint64 // last sequence of each shard
	events  uint64
}

// subject is one subject of the block.
type subject struct {
	number uint64
	kind   int // index into Block.Kinds
}

// NewWriter returns a Writer that begins a recording.
func NewWriter(to io.Writer) (*Writer, error) {
	w := newWriter(to)
	return w, w.write([]byte(head))
}

func newWriter(to io.Writer) *Writer {
	return &Writer{
		to: to, zstd: newCompressor(), decoder: schema.NewDecoder(), subjects: map[string]subject{},
		hosts: map[Host]struct{}{}, last: map[int]uint64{},
	}
}

// Bytes returns how long the file is, without what Flush would add.
func (w *Writer) Bytes() int64 { return w.offset }

// Events returns how many events the appended messages have.
func (w *Writer) Events() uint64 { return w.events }

// AddStreams appends the streams of the following messages, and the selection.
func (w *Writer) AddStreams(s Selection, streams []Stream) error {
	if err := w.Flush(); err != nil {
		return err
	}
	for len(streams) > 0 {
		n := min(len(streams), 1024)
		w.block = Block{Type: TypeStreams, Selection: s, Streams: streams[:n]}
		if err := w.Flush(); err != nil {
			return err
		}
		streams = streams[n:]
	}
	return nil
}

// ErrTooLong is wrapped by the error of Append for a message above a limit. The recording goes on without the message.
var ErrTooLong = errors.New("the message is too long")

// ErrRecorded is wrapped by the error of Append for a message that is not above the last one of its shard. The
// recording goes on without the message.
var ErrRecorded = errors.New("already recorded")

// Append appends a message, and may keep it until Flush. It refuses a message whose sequence is not above that of the
// message of the shard before.
func (w *Writer) Append(m *Message) error {
	if len(m.Data) > schema.MaxMessageBytes || len(m.Subject) > maxSubject {
		return fmt.Errorf("record message %d of shard %d: %w: %d bytes, at most %d", m.Sequence, m.Shard, ErrTooLong,
			len(m.Data), schema.MaxMessageBytes)
	}
	if last := w.last[m.Shard]; m.Sequence <= last {
		return fmt.Errorf("record message %d of shard %d: message %d is %w", m.Sequence, m.Shard, last, ErrRecorded)
	}
	if w.block.Type == TypeState {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	s, known := w.subjects[m.Subject]
	if !known {
		s = w.meet(m.Subject)
	}
	w.count(m, s)
	number := s.number
	if !known {
		number = 0
	}
	w.contents = appendMessage(w.contents, m, number)
	w.last[m.Shard] = m.Sequence
	if len(w.contents) >= blockBytes || w.summary >= summaryBytes {
		return w.Flush()
	}
	return nil
}

// meet adds a subject to the block.
func (w *Writer) meet(text string) subject {
	cluster, host, kind := splitSubject(text)
	b := &w.block
	b.Type = TypeMessages
	s := subject{number: uint64(len(w.subjects)) + 1, kind: -1}
	for i := range b.Kinds {
		if b.Kinds[i].Kind == kind {
			s.kind = i
		}
	}
	if s.kind < 0 {
		s.kind = len(b.Kinds)
		b.Kinds = append(b.Kinds, KindCount{Kind: kind})
		w.summary += 32 + len(kind)
	}
	w.subjects[text] = s
	h := Host{cluster, host}
	if _, known := w.hosts[h]; !known {
		w.hosts[h] = struct{}{}
		b.Hosts = append(b.Hosts, h)
		w.summary += 16 + len(cluster) + len(host)
	}
	return s
}

// count adds a message to the summary of the block.
func (w *Writer) count(m *Message, s subject) {
	b := &w.block
	if b.Since.IsZero() || m.Stored.Before(b.Since) {
		b.Since = m.Stored
	}
	if m.Stored.After(b.Until) {
		b.Until = m.Stored
	}
	k := &b.Kinds[s.kind]
	k.Messages++
	if err := w.decoder.Decode(m.Data, &w.batch); err == nil { // any message is recorded
		k.Events += uint64(w.batch.Events)
		w.events += uint64(w.batch.Events)
	}
	for i := range b.Shards {
		if r := &b.Shards[i]; r.Shard == m.Shard {
			r.Last = m.Sequence
			r.Messages++
			return
		}
	}
	b.Shards = append(b.Shards, Range{m.Shard, m.Sequence, m.Sequence, 1})
	w.summary += 40
}

// Flush writes the appended messages or sections as a block.
func (w *Writer) Flush() error {
	if w.block.Type == "" || w.err != nil {
		return w.err
	}
	summary := w.block.encode()
	w.out = w.out[:0]
	if len(w.contents) > 0 {
		w.out = w.zstd.EncodeAll(w.contents, w.out)
	}
	err := w.write(appendBlock(nil, summary, w.out, len(w.contents)))
	w.block, w.summary, w.contents = Block{}, 0, w.contents[:0]
	clear(w.subjects)
	clear(w.hosts)
	return err
}

// write writes with one call. After an error it removes an incomplete block.
func (w *Writer) write(data []byte) error {
	if w.err != nil {
		return w.err
	}
	n, err := w.to.Write(data)
	if err != nil {
		w.err = fmt.Errorf("write the recording: %w", err)
		if n > 0 && w.file != nil {
			_ = w.file.Truncate(w.offset) // else Append cuts it
		}
		return w.err
	}
	w.offset += int64(n)
	return nil
}

// Close flushes. It syncs, unlocks and closes a file that Append opened.
func (w *Writer) Close() error {
	err := w.Flush()
	_ = w.zstd.Close()
	if w.file == nil {
		return err
	}
	return errors.Join(err, w.file.Sync(), w.file.Close())
}

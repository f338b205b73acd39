package simulate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/gputap/gputap/schema"
)

// A log is logMagic and entries. An entry is its length (4 bytes, what follows it), the kind (1), withheld
// (1), the lengths of cluster and host (2 each), cluster, host, and the batch as it is published. Numbers
// are little endian.
const (
	logMagic = "gputap simulation 1\n"
	logHead  = 4 + 1 + 1 + 2 + 2
	maxEntry = schema.MaxMessageBytes + logHead + 2<<16
)

// Entry is one batch in the log.
type Entry struct {
	Cluster  string
	Host     string
	Kind     schema.Kind
	Withheld bool   // never published; see Options.Lose
	Data     []byte // valid until the next entry
}

// logWriter writes each entry with one write, before the batch is published. After a kill the log has every published
// batch.
type logWriter struct {
	mu   sync.Mutex
	file *os.File
	buf  []byte
}

func createLog(path string) (*logWriter, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("create the log: %s exists: remove it, or choose another file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("create the log: %w", err)
	}
	if _, err := file.WriteString(logMagic); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("write the log: %w", err)
	}
	return &logWriter{file: file}, nil
}

func (w *logWriter) write(h *schema.Header, b *batch) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := binary.LittleEndian.AppendUint32(w.buf[:0], uint32(logHead-4+len(h.Cluster)+len(h.Host)+len(b.data)))
	withheld := byte(0)
	if b.withheld {
		withheld = 1
	}
	p = append(p, byte(b.kind), withheld)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(h.Cluster)))
	p = binary.LittleEndian.AppendUint16(p, uint16(len(h.Host)))
	p = append(append(append(p, h.Cluster...), h.Host...), b.data...)
	w.buf = p
	if _, err := w.file.Write(p); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

func (w *logWriter) close() error {
	if w == nil {
		return nil
	}
	return w.file.Close()
}

var errEntry = errors.New("malformed entry")

// ReadLog yields every batch, withheld ones included, in order for each host and kind. A truncated entry at the end of
// the
// file is ignored: its batch was not published. An error is the last item.
func ReadLog(path string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Entry{}, fmt.Errorf("open the log: %w", err))
			return
		}
		defer file.Close()
		r := logReader{in: bufio.NewReaderSize(file, 1<<20)}
		for {
			e, err := r.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("log %s, byte %d: %w", path, r.at, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

type logReader struct {
	in  *bufio.Reader
	buf []byte
	at  int64 // offset of the entry
	n   int64 // bytes of it
}

// next reads one entry; io.EOF is the end, also amid one.
func (r *logReader) next() (Entry, error) {
	if r.at += r.n; r.at == 0 {
		magic := make([]byte, len(logMagic))
		if n, err := io.ReadFull(r.in, magic); string(magic[:n]) != logMagic[:n] {
			return Entry{}, errors.New("the file is not a log of a simulation")
		} else if err != nil {
			return Entry{}, atEnd(err)
		}
		r.at = int64(len(logMagic))
	}
	var size [4]byte
	if _, err := io.ReadFull(r.in, size[:]); err != nil {
		return Entry{}, atEnd(err)
	}
	n := int(binary.LittleEndian.Uint32(size[:]))
	if n < logHead-4 || n > maxEntry {
		return Entry{}, fmt.Errorf("%w: %d bytes", errEntry, n)
	}
	r.n = int64(4 + n)
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	p := r.buf[:n]
	if _, err := io.ReadFull(r.in, p); err != nil {
		return Entry{}, atEnd(err)
	}
	cluster, host := int(binary.LittleEndian.Uint16(p[2:])), int(binary.LittleEndian.Uint16(p[4:]))
	names := p[6:]
	if cluster+host > len(names) || schema.Kind(p[0]) >= schema.NumKinds || p[1] > 1 {
		return Entry{}, errEntry
	}
	return Entry{
		Cluster: string(names[:cluster]), Host: string(names[cluster : cluster+host]), Data: names[cluster+host:],
		Kind: schema.Kind(p[0]), Withheld: p[1] == 1,
	}, nil
}

// atEnd treats a truncated entry as the end of the log.
func atEnd(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

package simulate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// A log is logMagic and a schema.Recording, whose messages have the kind (1 byte), withheld (1), the lengths of cluster
// and host (2 each), cluster, host, and the batch as it is published. Numbers are little endian.
const (
	logMagic = "gputap simulation 1\n"
	logHead  = 1 + 1 + 2 + 2
)

// Entry is one batch in the log.
type Entry struct {
	Withheld bool   // never published; see Options.Lose
	Data     []byte // valid until the next entry
	end      int64  // of the entry in the file
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
	_, err = file.WriteString(logMagic)
	return &logWriter{file: file}, err
}

func (w *logWriter) write(h *schema.Header, kind schema.Kind, b *batch) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	withheld := byte(0)
	if b.withheld {
		withheld = 1
	}
	p := binary.LittleEndian.AppendUint32(w.buf[:0], uint32(logHead+len(h.Cluster)+len(h.Host)+len(b.data)))
	p = binary.LittleEndian.AppendUint16(append(p, byte(kind), withheld), uint16(len(h.Cluster)))
	p = binary.LittleEndian.AppendUint16(p, uint16(len(h.Host)))
	w.buf = append(append(append(p, h.Cluster...), h.Host...), b.data...)
	if _, err := w.file.Write(w.buf); err != nil {
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

// ReadLog yields every batch, withheld ones included, in order for each host and kind. A truncated entry at the end of
// the file is ignored: its batch was not published. An error is the last item.
func ReadLog(path string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Entry{}, fmt.Errorf("open the log: %w", err))
			return
		}
		defer file.Close()
		in, magic := bufio.NewReaderSize(file, 1<<20), make([]byte, len(logMagic))
		if n, _ := io.ReadFull(in, magic); string(magic[:n]) != logMagic[:n] {
			yield(Entry{}, fmt.Errorf("log %s: not the log of a simulation", path))
			return
		}
		next := schema.Recording(in)
		for at := int64(len(logMagic)); ; {
			message, err := next()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			e, ok := readEntry(message)
			if err == nil && !ok {
				err = errors.New("malformed entry")
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("log %s, byte %d: %w", path, at, err))
				return
			}
			at += int64(4 + len(message))
			e.end = at
			if !yield(e, nil) {
				return
			}
		}
	}
}

func readEntry(message []byte) (e Entry, ok bool) {
	if len(message) < logHead || message[1] > 1 {
		return e, false
	}
	names := int(binary.LittleEndian.Uint16(message[2:])) + int(binary.LittleEndian.Uint16(message[4:]))
	if logHead+names > len(message) {
		return e, false
	}
	return Entry{Withheld: message[1] == 1, Data: message[logHead+names:]}, true
}

// resume continues the log of a simulation that was killed. For each host and kind only the last batch may have been in
// flight, so resume publishes it again. Later batches come from a new boot of each host.
func (s *Simulator) resume(ctx context.Context, js jetstream.JetStream, path string) (*logWriter, error) {
	last, end, err := lastOfEach(path)
	if errors.Is(err, os.ErrNotExist) {
		return createLog(path)
	}
	for from, data := range last {
		if err == nil {
			d := delivery{Simulator: s, js: js, from: from, data: data}
			d.send()
			err = d.finish(ctx)
		}
	}
	if err == nil {
		err = os.Truncate(path, end) // a truncated entry was not published
	}
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return &logWriter{file: file}, err
}

// lastOfEach returns the last published batch of each host and kind, and the end of the last complete entry.
func lastOfEach(path string) (last map[flow][]byte, end int64, err error) {
	last, end = map[flow][]byte{}, int64(len(logMagic))
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	for e, err := range ReadLog(path) {
		if err != nil {
			return nil, 0, err
		}
		if err := decoder.Decode(e.Data, b); err != nil {
			return nil, 0, fmt.Errorf("log %s, byte %d: %w", path, end, err)
		}
		if !e.Withheld {
			last[flow{b.Cluster, b.Host, b.Kind}] = bytes.Clone(e.Data)
		}
		end = e.end
	}
	return last, end, nil
}

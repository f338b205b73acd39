package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gputap/gputap/schema"
)

// Limits of a profile, which is kept in memory.
const (
	maxProfileBytes  = 128 << 20 // unpacked
	maxProfileEvents = 1 << 20
)

// pytorch is the start of the recorded run in schema/testdata.
//
//go:embed pytorch.batches.gz
var pytorch []byte

// recording has the batches of one host.
type recording []*schema.Batch

// builtIn returns the built-in profile.
func builtIn() (recording, error) { return readRecording(bytes.NewReader(pytorch)) }

// openRecording reads a profile from a regular file, or from a pipe that is already open. Opening a named pipe could
// block for ever.
func openRecording(path string) (recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the profile: %w", err)
	}
	open := path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
	pipe := open && info.Mode()&os.ModeNamedPipe != 0
	if !info.Mode().IsRegular() && !pipe {
		return nil, fmt.Errorf(
			"open the profile %s: not a regular file: copy it to a file, or pipe it to /dev/stdin", path,
		)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the profile: %w", err)
	}
	defer file.Close()
	r, err := readRecording(file)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", path, err)
	}
	return r, nil
}

// readRecording reads published batches, each behind its length in 4 bytes, little endian. The data may be compressed
// with gzip.
func readRecording(from io.Reader) (recording, error) {
	in := bufio.NewReader(from)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReader(unpacked)
	}
	l := loader{decoder: schema.NewDecoder(), seqs: map[runKind]uint64{}}
	for {
		err := l.next(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", l.count, err)
		}
	}
	if l.events == 0 {
		return nil, errors.New("no events: record a program that uses CUDA")
	}
	return l.batches, nil
}

type runKind struct {
	run  uint64
	kind schema.Kind
}

// loader reads one recording.
type loader struct {
	decoder              *schema.Decoder
	batches              recording
	seqs                 map[runKind]uint64
	count, bytes, events int
}

// next reads one batch; io.EOF is the end.
func (l *loader) next(in io.Reader) error {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the file is truncated within a length")
		}
		return err
	}
	l.count++
	n := int(binary.LittleEndian.Uint32(size[:]))
	if n > schema.MaxMessageBytes {
		return fmt.Errorf("length %d, at most %d: the file is not a recording", n, schema.MaxMessageBytes)
	}
	if l.bytes += n; l.bytes > maxProfileBytes {
		return fmt.Errorf("more than %d MiB: use a shorter recording", maxProfileBytes>>20)
	}
	data, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err != nil {
		return err
	}
	if len(data) < n {
		return errors.New("the file is truncated within a batch")
	}
	b := &schema.Batch{}
	if err := l.decoder.Decode(data, b); err != nil {
		return err
	}
	return l.add(b)
}

func (l *loader) add(b *schema.Batch) error {
	if b.Kind == schema.KindNone {
		return nil
	}
	if l.events += b.Events; l.events > maxProfileEvents {
		return fmt.Errorf("more than %d events: use a shorter recording", maxProfileEvents)
	}
	if len(l.batches) > 0 {
		if first := l.batches[0]; first.Host != b.Host || first.BootID != b.BootID {
			return fmt.Errorf(
				"from host %q, but the first batch is from %q: use a recording of one boot of one host", b.Host,
				first.Host,
			)
		}
	}
	id := runKind{b.Run, b.Kind}
	if b.Seq != 0 && b.Seq <= l.seqs[id] {
		l.events -= b.Events
		return nil // duplicate
	}
	l.seqs[id] = b.Seq
	l.batches = append(l.batches, b)
	return nil
}

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

// Bounds of a profile: its events are kept in memory, as batches of their own.
const (
	maxProfileBytes  = 128 << 20 // unpacked
	maxProfileEvents = 1 << 20
)

// pytorch is the begin of the recorded run in schema/testdata.
//
//go:embed pytorch.batches.gz
var pytorch []byte

// recording is the batches of one host.
type recording []*schema.Batch

// builtIn is the profile without a file.
func builtIn() (recording, error) { return readRecording(bytes.NewReader(pytorch)) }

// openRecording reads a profile from a file, or from a pipe that is open already. Another pipe nobody may ever write.
func openRecording(path string) (recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the profile: %w", err)
	}
	open := path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
	pipe := open && info.Mode()&os.ModeNamedPipe != 0
	if !info.Mode().IsRegular() && !pipe {
		return nil, fmt.Errorf("profile %s: no regular file: write it into one, or pipe it to /dev/stdin", path)
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

// readRecording reads batches as they were published, each with its length before it, 4 bytes little
// endian; packed by gzip or not.
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
		return nil, errors.New("holds no events: record a program that uses CUDA")
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
			return errors.New("the file ends within a length: it is cut off")
		}
		return err
	}
	l.count++
	n := int(binary.LittleEndian.Uint32(size[:]))
	if n > schema.MaxMessageBytes {
		return fmt.Errorf("claims %d bytes, at most %d: this is no file of batches", n, schema.MaxMessageBytes)
	}
	if l.bytes += n; l.bytes > maxProfileBytes {
		return fmt.Errorf("more than %d MiB: take a shorter recording", maxProfileBytes>>20)
	}
	data, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err != nil {
		return err
	}
	if len(data) < n {
		return errors.New("the file ends within a batch: it is cut off")
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
		return fmt.Errorf("more than %d events: take a shorter recording", maxProfileEvents)
	}
	if len(l.batches) > 0 {
		if first := l.batches[0]; first.Host != b.Host || first.BootID != b.BootID {
			return fmt.Errorf("of host %q, the first one is of %q: take a recording of one boot of one host", b.Host, first.Host)
		}
	}
	id := runKind{b.Run, b.Kind}
	if b.Seq != 0 && b.Seq <= l.seqs[id] {
		l.events -= b.Events
		return nil // stored twice
	}
	l.seqs[id] = b.Seq
	l.batches = append(l.batches, b)
	return nil
}

package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gputap/gputap/schema"
)

// maxProfileEvents limits a profile, which is kept in memory.
const maxProfileEvents = 1 << 20

// pytorch is the start of the recorded run in schema/testdata: the built-in profile.
//
//go:embed pytorch.batches.gz
var pytorch []byte

// recording has the batches of one host.
type recording []*schema.Batch

// openRecording reads a profile from a regular file, or from a pipe that is already open. Opening a named pipe could
// block for ever. An empty path is the built-in profile.
func openRecording(path string) (recording, error) {
	if path == "" {
		return readRecording(bytes.NewReader(pytorch))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the profile: %w", err)
	}
	open := path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
	pipe := open && info.Mode()&os.ModeNamedPipe != 0
	if !info.Mode().IsRegular() && !pipe {
		return nil, fmt.Errorf("open the profile %s: not a regular file: copy it to a file, or pipe it to /dev/stdin",
			path)
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

// readRecording reads published batches. The data may be compressed with gzip.
func readRecording(from io.Reader) (recording, error) {
	in := bufio.NewReader(from)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReader(unpacked)
	}
	var r recording
	events, seqs := 0, map[[2]uint64]uint64{} // seqs by run and kind
	add := func(b *schema.Batch) error {
		id := [2]uint64{b.Run, uint64(b.Kind)}
		switch {
		case b.Kind == schema.KindNone:
			return nil
		case len(r) > 0 && (r[0].Host != b.Host || r[0].BootID != b.BootID):
			return fmt.Errorf("from host %q, but the first batch is from %q: use a recording of one boot of one host",
				b.Host, r[0].Host)
		case b.Seq != 0 && b.Seq <= seqs[id]:
			return nil // duplicate
		}
		seqs[id] = b.Seq
		if events += b.Events; events > maxProfileEvents {
			return fmt.Errorf("more than %d events: use a shorter recording", maxProfileEvents)
		}
		r = append(r, b)
		return nil
	}
	next := schema.Recording(in)
	for count := 1; ; count++ {
		message, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		var b *schema.Batch
		if err == nil {
			b, err = decode(bytes.Clone(message))
		}
		if err == nil {
			err = add(b)
		}
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", count, err)
		}
	}
	if events == 0 {
		return nil, errors.New("no events: record a program that uses CUDA")
	}
	return r, nil
}

// decode returns a batch that borrows the message.
func decode(message []byte) (*schema.Batch, error) {
	b := &schema.Batch{}
	return b, schema.NewDecoder().Decode(message, b)
}

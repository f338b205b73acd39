package recording

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Recorded describes the contents of a file when Append opened it.
type Recorded struct {
	Selection Selection
	Streams   []Stream      // in the order of the file; none: nothing is recorded yet
	Last      []Range       // of each shard with messages, over the whole file
	Hosts     map[Host]bool // of messages and of state
	Cut       int64         // bytes of an incomplete end that Append removed
}

// Append opens a recording to append to it, or creates it, and locks it. It refuses a file that is not a recording. It
// removes an incomplete end. If the file has neither streams nor messages, Append removes everything: only a part of
// its beginning was written.
func Append(path string) (*Writer, *Recorded, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open the recording: %w", err)
	}
	w, found, err := appendTo(file, path)
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return w, found, nil
}

func appendTo(file *os.File, path string) (*Writer, *Recorded, error) {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, nil, fmt.Errorf("lock the recording %s: another program writes it: stop that one, or choose "+
			"another file", path)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("open the recording: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("open the recording: %s is not a regular file", path)
	}
	if err := begins(file, path, info.Size()); err != nil {
		return nil, nil, err
	}
	w := newWriter(file)
	w.file = file
	found, end, err := w.scan(file)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(found.Streams) > 0:
	case len(found.Last) > 0:
		return nil, nil, fmt.Errorf("open the recording: %s: the list of its streams is damaged: its messages can be "+
			"read; choose another file to record into", path)
	default:
		end = 0
	}
	found.Cut = info.Size() - end
	if err := file.Truncate(end); err != nil {
		return nil, nil, fmt.Errorf("cut the incomplete end of %s: %w", path, err)
	}
	if _, err := file.Seek(end, 0); err != nil {
		return nil, nil, fmt.Errorf("open the recording: %w", err)
	}
	if w.offset = end; end == 0 {
		return w, found, w.write([]byte(head))
	}
	return w, found, nil
}

// begins refuses a file that is not a recording, or the beginning of one.
func begins(file *os.File, path string, size int64) error {
	if size >= int64(len(head)) {
		return checkHead(file, path)
	}
	first := make([]byte, size)
	if _, err := file.ReadAt(first, 0); err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	if string(first) != head[:size] {
		return fmt.Errorf("open the recording: %s: %w: choose another file", path, ErrNotRecording)
	}
	return nil
}

// scan reads all summaries and returns the end of the last whole block. It checks the contents of the last blocks until
// one is whole: an earlier damage stays for readers to report.
func (w *Writer) scan(file *os.File) (found *Recorded, end int64, err error) {
	r := newReader(file)
	defer r.decompressor.close()
	var blocks []int64
	for b, err := range r.walk(func(*Block) bool { return false }) {
		if _, isDamage := errors.AsType[*Damage](err); isDamage {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		blocks = append(blocks, b.Offset)
	}
	end = int64(len(head))
	size, err := r.size()
	if err != nil {
		return nil, 0, err
	}
	for ; len(blocks) > 0; blocks = blocks[:len(blocks)-1] {
		at := blocks[len(blocks)-1]
		b, h, err := r.blockAt(at, size)
		if err == nil {
			_, err = r.contents(b, &h)
		}
		if err == nil {
			end = at + b.Bytes
			break
		}
	}
	found = &Recorded{}
	r.size = func() (int64, error) { return end, nil }
	for b, err := range r.walk(func(*Block) bool { return false }) {
		if err == nil {
			found.add(&b.Block)
		}
	}
	for _, r := range found.Last {
		w.last[r.Shard] = r.Last
	}
	return found, end, nil
}

// add adds a block to the description.
func (f *Recorded) add(b *Block) {
	if b.Type == TypeStreams {
		f.Selection = b.Selection
		f.Streams = append(f.Streams, b.Streams...)
	}
	if f.Hosts == nil {
		f.Hosts = map[Host]bool{}
	}
	for _, h := range b.Hosts {
		f.Hosts[h] = true
	}
	for i := range b.parts {
		if s := &b.parts[i].section; s.Cluster != "" || s.Host != "" {
			f.Hosts[HostOf(s.Cluster, s.Host)] = true
		}
	}
	for _, r := range b.Shards {
		i := slices.IndexFunc(f.Last, func(to Range) bool { return to.Shard == r.Shard })
		if i < 0 {
			f.Last = append(f.Last, r)
			continue
		}
		f.Last[i].Last = max(f.Last[i].Last, r.Last)
		f.Last[i].Messages += r.Messages
	}
}

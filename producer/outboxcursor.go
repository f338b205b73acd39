package producer

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"github.com/gputap/gputap/schema"
)

// The cursor is a small text file: for each kind the first record that is not acked, and what stands before it in its
// segment; then a checksum. It does not go beyond a segment that could not be read yet: what is before it was acked, and is
// removed. It may be older than the truth, which costs batches that are sent again. It may be newer than
// the segments when power fails: a number of a segment is therefore never used again.
const (
	cursorName = "cursor"
	cursorForm = "gputap outbox 1\n"
)

// cursorEntry is a mark by the number of its segment.
type cursorEntry struct {
	number  uint64
	off     int64
	batches int
	events  uint64
}

type cursor struct {
	next  uint64 // the least number that no segment has had
	kinds [schema.NumKinds]cursorEntry
}

func (c *cursor) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%snext %d\n", cursorForm, c.next)
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		e := c.kinds[kind]
		fmt.Fprintf(&b, "%s %d %d %d %d\n", kind, e.number, e.off, e.batches, e.events)
	}
	return fmt.Sprintf("%s%08x\n", b.String(), crc32.Checksum([]byte(b.String()), castagnoli))
}

func parseCursor(text string) (c cursor, ok bool) {
	body, found := strings.CutPrefix(text, cursorForm)
	if !found || len(text) < 9 || fmt.Sprintf("%08x\n", crc32.Checksum([]byte(text[:len(text)-9]), castagnoli)) != text[len(text)-9:] {
		return cursor{}, false
	}
	for _, line := range strings.Split(body, "\n") {
		var name string
		var e cursorEntry
		if n, _ := fmt.Sscanf(line, "next %d", &e.number); n == 1 {
			c.next = e.number
			continue
		}
		if n, _ := fmt.Sscanf(line, "%s %d %d %d %d", &name, &e.number, &e.off, &e.batches, &e.events); n != 5 {
			continue
		}
		if kind := schema.ParseKind(name); kind != schema.KindNone {
			c.kinds[kind] = e
		}
	}
	return c, true
}

// write replaces the file. It is not synced: without it, or with an older one, batches are only sent again.
func (c *cursor) write(dir string) error {
	path := filepath.Join(dir, cursorName)
	if err := os.WriteFile(path+".new", []byte(c.text()), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readCursor gives the zero cursor where there is none that can be trusted.
func readCursor(dir string) (c cursor, err error) {
	info, err := os.Lstat(filepath.Join(dir, cursorName))
	if os.IsNotExist(err) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	const most = 4096 // a sane one has 200 bytes
	if !info.Mode().IsRegular() || info.Size() > most {
		return c, errDamaged
	}
	text, err := os.ReadFile(filepath.Join(dir, cursorName))
	if err != nil {
		return c, err
	}
	c, ok := parseCursor(string(text))
	if !ok {
		return c, errDamaged
	}
	return c, nil
}

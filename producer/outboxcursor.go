package producer

import (
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gputap/gputap/schema"
)

// The cursor is a small text file: for each kind the first record that is not acked, and what stands before it in its
// segment; then a checksum. It does not go beyond a segment that could not be read yet: what is before it was acked, and is
// removed. It may be older than the truth, which costs batches that are sent again. It may be newer than
// the segments when power fails: a number of a segment is therefore never used again.
//
// Lines that only some have say what runs lost, how much of it acked batches told, and their least number; the segments whose lost events are in
// that and which may be there still; and those of which that is so for what is cut off.
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
	debts map[string]debt
	gone  []uint64
	torn  []uint64
}

func (c *cursor) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%snext %d\n", cursorForm, c.next)
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		e := c.kinds[kind]
		fmt.Fprintf(&b, "%s %d %d %d %d\n", kind, e.number, e.off, e.batches, e.events)
	}
	b.WriteString(c.owed())
	for _, number := range c.gone {
		fmt.Fprintf(&b, "gone %d\n", number)
	}
	for _, number := range c.torn {
		fmt.Fprintf(&b, "torn %d\n", number)
	}
	return fmt.Sprintf("%s%08x\n", b.String(), crc32.Checksum([]byte(b.String()), castagnoli))
}

// owed are the lines of debts.
func (c *cursor) owed() string {
	var b strings.Builder
	for _, run := range slices.Sorted(maps.Keys(c.debts)) {
		fmt.Fprintf(&b, "run %q %d %d %d\n", run, c.debts[run].lost, c.debts[run].told, c.debts[run].first)
	}
	return b.String()
}

func parseCursor(text string) (c cursor, ok bool) {
	body, found := strings.CutPrefix(text, cursorForm)
	if !found || len(text) < 9 || fmt.Sprintf("%08x\n", crc32.Checksum([]byte(text[:len(text)-9]), castagnoli)) != text[len(text)-9:] {
		return cursor{}, false
	}
	c.debts = map[string]debt{}
	for _, line := range strings.Split(body, "\n") {
		var name string
		var e cursorEntry
		var d debt
		if n, _ := fmt.Sscanf(line, "run %q %d %d %d", &name, &d.lost, &d.told, &d.first); n >= 3 {
			c.debts[name] = d
			continue
		}
		if n, _ := fmt.Sscanf(line, "gone %d", &e.number); n == 1 {
			c.gone = append(c.gone, e.number)
			continue
		}
		if n, _ := fmt.Sscanf(line, "torn %d", &e.number); n == 1 {
			c.torn = append(c.torn, e.number)
			continue
		}
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

// write replaces the file by a text. Without synced, power may take that, and what was there: then batches are only sent again.
func (d *directory) write(text string, synced bool) error {
	const next = cursorName + ".new"
	f, err := d.create(next)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if synced {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := d.Rename(next, cursorName); err != nil || !synced {
		return err
	}
	return d.lock.Sync()
}

// readCursor gives the zero cursor where there is none that can be trusted.
func readCursor(dir *os.Root) (c cursor, err error) {
	info, err := dir.Lstat(cursorName)
	if os.IsNotExist(err) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	const most = 1 << 20 // a sane one has 200 bytes, and some more while much is lost
	if !info.Mode().IsRegular() || info.Size() > most {
		return c, errDamaged
	}
	text, err := dir.ReadFile(cursorName)
	if err != nil {
		return c, err
	}
	c, ok := parseCursor(string(text))
	if !ok {
		return c, errDamaged
	}
	return c, nil
}

package recording

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// Message is one message of a shard's stream.
type Message struct {
	Shard    int
	Sequence uint64    // in the stream
	Stored   time.Time // when NATS stored the message
	Subject  string
	Data     []byte
}

// Host returns the host of the message.
func (m *Message) Host() Host {
	cluster, host, _ := splitSubject(m.Subject)
	return Host{cluster, host}
}

// HostOf returns the host that has these names.
func HostOf(cluster, host string) Host { return Host{schema.Token(cluster), schema.Token(host)} }

// Selection says which messages a recording has. The zero Selection selects all.
type Selection struct {
	Cluster, Host string        // ""  selects all
	Kinds         []schema.Kind // none selects all
	// Job selects the hosts on which a job of this pattern runs, each from the first message on that names a process of
	// the job. "" selects all. The methods of Selection do not look at it: see JobHosts.
	Job string
	// Redacted says that names are pseudonyms, also those above. Such a recording cannot be continued.
	Redacted bool
}

// Matches reports whether the selection has messages of a subject.
func (s *Selection) Matches(subject string) bool {
	cluster, host, kind := splitSubject(subject)
	return s.hasHost(cluster, host) && s.hasKind(kind)
}

// HasHost reports whether the selection has messages of a host.
func (s *Selection) HasHost(cluster, host string) bool {
	return s.hasHost(schema.Token(cluster), schema.Token(host))
}

func (s *Selection) hasHost(cluster, host string) bool {
	return (s.Cluster == "" || schema.Token(s.Cluster) == cluster) && (s.Host == "" || schema.Token(s.Host) == host)
}

func (s *Selection) hasKind(word string) bool {
	return len(s.Kinds) == 0 || slices.ContainsFunc(s.Kinds, func(k schema.Kind) bool { return k.String() == word })
}

// Equal reports whether both select the same messages.
func (s *Selection) Equal(to *Selection) bool {
	sorted := func(kinds []schema.Kind) []schema.Kind {
		return slices.Compact(slices.Sorted(slices.Values(kinds)))
	}
	return s.Cluster == to.Cluster && s.Host == to.Host && s.Job == to.Job &&
		s.Redacted == to.Redacted && slices.Equal(sorted(s.Kinds), sorted(to.Kinds))
}

// Filter selects messages of a recording. The zero Filter selects all.
type Filter struct {
	Selection
	Since, Until time.Time // stored at Since or later, and before Until; zero: no limit
	Shards       []int     // none selects all
}

func (f *Filter) matches(m *Message) bool {
	return !m.Stored.Before(f.Since) && (f.Until.IsZero() || m.Stored.Before(f.Until)) && f.hasShard(m.Shard) &&
		f.Matches(m.Subject)
}

func (f *Filter) hasShard(shard int) bool {
	return len(f.Shards) == 0 || slices.Contains(f.Shards, shard)
}

// mayMatch reports whether a block of messages may have a selected one.
func (f *Filter) mayMatch(b *Block) bool {
	return !b.Until.Before(f.Since) && (f.Until.IsZero() || b.Since.Before(f.Until)) &&
		slices.ContainsFunc(b.Shards, func(r Range) bool { return f.hasShard(r.Shard) }) &&
		slices.ContainsFunc(b.Hosts, func(h Host) bool { return f.hasHost(h.Cluster, h.Host) }) &&
		slices.ContainsFunc(b.Kinds, func(k KindCount) bool { return f.hasKind(k.Kind) })
}

// splitSubject returns the tokens of gputap.v1.ev.<shard>.<cluster>.<host>.<kind>, or "" for tokens that are absent.
func splitSubject(subject string) (cluster, host, kind string) {
	rest := subject
	for range 4 {
		_, rest, _ = strings.Cut(rest, ".")
	}
	cluster, rest, _ = strings.Cut(rest, ".")
	host, kind, _ = strings.Cut(rest, ".")
	return cluster, host, kind
}

// appendMessage appends a message to the contents of a block. number is that of the subject in the block, from 1 on; 0
// is a subject that the block does not have yet.
func appendMessage(dst []byte, m *Message, number uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Shard))
	dst = binary.AppendUvarint(dst, m.Sequence)
	dst = binary.AppendVarint(dst, m.Stored.UnixNano())
	dst = binary.AppendUvarint(dst, number)
	if number == 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(m.Subject))), m.Subject...)
	}
	return append(binary.AppendUvarint(dst, uint64(len(m.Data))), m.Data...)
}

var errContents = errors.New("the contents are not those of a block of messages")

// contents reads the messages of one block.
type contents struct {
	rest     []byte
	subjects []string
	failed   bool
}

// next reads a message, whose data are borrowed from the contents.
func (c *contents) next(m *Message) error {
	shard := c.uint(math.MaxInt32)
	sequence := c.uint(math.MaxUint64)
	stored, n := binary.Varint(c.rest)
	c.take(n)
	number := c.uint(uint64(len(c.subjects)))
	if number == 0 {
		c.subjects = append(c.subjects, string(c.bytes(maxSubject)))
		number = uint64(len(c.subjects))
	}
	data := c.bytes(schema.MaxMessageBytes)
	if c.failed {
		return errContents
	}
	*m = Message{int(shard), sequence, time.Unix(0, stored).UTC(), c.subjects[number-1], data}
	return nil
}

func (c *contents) uint(most uint64) uint64 {
	v, n := binary.Uvarint(c.rest)
	if v > most {
		n = 0
	}
	c.take(n)
	return v
}

func (c *contents) bytes(most uint64) []byte {
	n := int(c.uint(most))
	if c.failed || n > len(c.rest) {
		c.failed = true
		return nil
	}
	data := c.rest[:n:n]
	c.rest = c.rest[n:]
	return data
}

// take skips n bytes. n is not above 0 after a malformed number.
func (c *contents) take(n int) {
	if n <= 0 {
		c.failed = true
		return
	}
	c.rest = c.rest[n:]
}

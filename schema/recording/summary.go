package recording

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// Type names the contents of a block.
type Type string

// Types of blocks. A Reader skips a block of another type.
const (
	TypeState    Type = "state"    // sections of state
	TypeStreams  Type = "streams"  // the streams that the following blocks record
	TypeMessages Type = "messages" // messages
)

// Block is the summary of a block.
type Block struct {
	Offset, Bytes int64 // in the file
	Type          Type

	// of messages
	Since, Until time.Time // when NATS stored the first and the last message
	Shards       []Range
	Hosts        []Host
	Kinds        []KindCount

	// of streams
	Selection Selection
	Streams   []Stream

	parts []part // of state
}

// Range describes the messages of one shard.
type Range struct {
	Shard       int
	First, Last uint64 // sequences
	Messages    uint64
}

// Host names a host by the tokens of its subjects; see schema.Token.
type Host struct{ Cluster, Host string }

// KindCount counts the messages of one kind and the events in them.
type KindCount struct {
	Kind             string
	Messages, Events uint64
}

// Stream is the JetStream stream of one shard, as it was when its recording began.
type Stream struct {
	Shard   int
	Name    string
	Created time.Time // identifies the stream: another one of the same name was created at another time
	After   uint64    // the recording begins behind this sequence
	State   Knowledge // of the sections of this shard
	Since   time.Time // of partial state: when the oldest message was stored that it covers; zero: unknown
}

// Knowledge says how much of the events before a recording its state covers.
type Knowledge string

// Values of Knowledge.
const (
	KnowledgeNone     Knowledge = "none"     // there are no sections
	KnowledgePartial  Knowledge = "partial"  // retention had removed earlier messages
	KnowledgeComplete Knowledge = "complete" // all events
)

// Keys of a summary. docs/recording-form.md explains them.
const (
	keyType     = "type"
	keySince    = "since"
	keyUntil    = "until"
	keyShards   = "shards"
	keyHosts    = "hosts"
	keyKinds    = "kinds"
	keyCluster  = "cluster"
	keyHost     = "host"
	keyJob      = "job"
	keyRedacted = "redacted"
	keyOnly     = "only"
	keyStreams  = "streams"
	keySections = "sections"
)

// encode returns the summary as msgpack.
func (b *Block) encode() []byte {
	var p packer
	switch b.Type {
	case TypeMessages:
		p.mapHeader(6)
		p.text(keyType, string(b.Type))
		p.key(keySince).int(b.Since.UnixNano())
		p.key(keyUntil).int(b.Until.UnixNano())
		p.key(keyShards).list(len(b.Shards))
		for _, r := range b.Shards {
			p.list(4).uint(uint64(r.Shard), r.First, r.Last, r.Messages)
		}
		p.key(keyHosts).list(len(b.Hosts))
		for _, h := range b.Hosts {
			p.list(2).string(h.Cluster, h.Host)
		}
		p.key(keyKinds).list(len(b.Kinds))
		for _, k := range b.Kinds {
			p.list(3).string(k.Kind).uint(k.Messages, k.Events)
		}
	case TypeStreams:
		s, keys := &b.Selection, 5
		if s.Job != "" {
			keys++
		}
		if s.Redacted {
			keys++
		}
		p.mapHeader(keys)
		p.text(keyType, string(b.Type))
		p.text(keyCluster, s.Cluster)
		p.text(keyHost, s.Host)
		if s.Job != "" {
			p.text(keyJob, s.Job)
		}
		if s.Redacted {
			p.key(keyRedacted).uint(1)
		}
		p.key(keyOnly).list(len(b.Selection.Kinds))
		for _, k := range b.Selection.Kinds {
			p.string(k.String())
		}
		p.key(keyStreams).list(len(b.Streams))
		for _, s := range b.Streams {
			p.list(6).uint(uint64(s.Shard)).string(s.Name).int(s.Created.UnixNano()).uint(s.After)
			p.string(string(s.State)).int(nanoseconds(s.Since))
		}
	case TypeState:
		p.mapHeader(2)
		p.text(keyType, string(b.Type))
		p.key(keySections).list(len(b.parts))
		for i := range b.parts {
			b.parts[i].encode(&p)
		}
	}
	return p.data()
}

// decodeSummary reads a summary. It ignores keys that it does not know, and fields at the end of rows.
func decodeSummary(data []byte) (*Block, error) {
	u := newUnpacker(data)
	b := &Block{}
	for range u.mapLength() {
		switch u.string(maxName) {
		case keyType:
			b.Type = Type(u.string(maxName))
		case keySince:
			b.Since = u.time()
		case keyUntil:
			b.Until = u.time()
		case keyShards:
			b.Shards = rows(u, 4, func() Range { return Range{u.shard(), u.uint(), u.uint(), u.uint()} })
		case keyHosts:
			b.Hosts = rows(u, 2, func() Host { return Host{u.string(maxName), u.string(maxName)} })
		case keyKinds:
			b.Kinds = rows(u, 3, func() KindCount { return KindCount{u.string(maxName), u.uint(), u.uint()} })
		case keyCluster:
			b.Selection.Cluster = u.string(maxName)
		case keyHost:
			b.Selection.Host = u.string(maxName)
		case keyJob:
			b.Selection.Job = u.string(maxName)
		case keyRedacted:
			b.Selection.Redacted = u.uint() != 0
		case keyOnly:
			for range u.listLength() {
				b.Selection.Kinds = append(b.Selection.Kinds, schema.ParseKind(u.string(maxName)))
			}
		case keyStreams:
			b.Streams = rows(u, 6, u.stream)
		case keySections:
			b.parts = rows(u, partFields, u.part)
		default:
			u.skip(0)
		}
	}
	return b, u.end()
}

func (u *unpacker) stream() Stream {
	s := Stream{Shard: u.shard(), Name: u.string(maxName), Created: u.time(), After: u.uint()}
	s.State, s.Since = Knowledge(u.string(maxName)), u.optionalTime()
	return s
}

// optionalTime reads a time that nanoseconds wrote.
func (u *unpacker) optionalTime() time.Time {
	if n := u.int(); n != 0 {
		return time.Unix(0, n).UTC()
	}
	return time.Time{}
}

// nanoseconds returns 0 for the zero time.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

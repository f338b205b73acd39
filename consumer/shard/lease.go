package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// leases are the keys of one fold in the lease bucket: one for each owned shard, and one for each member of the group.
// The bucket drops a key that was not renewed for its TTL. A lease only avoids double work; the manifest's fence
// guarantees that one owner commits.
type leases struct {
	kv       jetstream.KeyValue
	conn     *nats.Conn
	fold     string
	instance string
	ttl      time.Duration
	refuses  []int // shards whose state a newer program saved, in order
}

// lease is the value of a key.
type lease struct {
	Instance string `json:"instance"`
	Refuses  []int  `json:"refuses,omitempty"` // of a member: the shards that it cannot read
}

// member is an instance in the group.
type member struct {
	name    string
	refuses []int
}

var (
	// errLeaseLost ends an ownership without a checkpoint.
	errLeaseLost = errors.New("the lease was lost")
	// errTooMany: JetStream returns the last messages of at most 1,024 subjects in one answer.
	errTooMany = errors.New("too many leases for one answer")
)

func openLeases(ctx context.Context, js jetstream.JetStream, fold, instance string) (*leases, error) {
	kv, err := js.KeyValue(ctx, schema.LeaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("NATS has no bucket %s; run gputap stream init", schema.LeaseBucket)
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", schema.LeaseBucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", schema.LeaseBucket, err)
	}
	if status.TTL() < time.Second {
		return nil, fmt.Errorf("bucket %s keeps keys for %s, need 1s or more: remove the bucket and run "+
			"gputap stream init", schema.LeaseBucket, status.TTL())
	}
	return &leases{kv: kv, conn: js.Conn(), fold: schema.Token(fold), instance: instance, ttl: status.TTL()}, nil
}

var notInKeys = regexp.MustCompile(`[^-_/=A-Za-z0-9]`)

// keyToken turns a name into one token of a key. Keys allow fewer characters than subjects: others become underscores,
// and a checksum of the name follows, so that two names never become the same token.
func keyToken(name string) string {
	token := schema.Token(name)
	clean := notInKeys.ReplaceAllString(token, "_")
	if clean == token {
		return token
	}
	return fmt.Sprintf("%s-%08x", clean, crc32.ChecksumIEEE([]byte(name)))
}

func (l *leases) shardKey(shard int) string { return l.fold + "." + strconv.Itoa(shard) }
func (l *leases) memberKey() string         { return "m." + l.fold + "." + l.instance }

// look reads the members, in order, and the holders of shards. A stale replica may answer: a write that is based on a
// stale answer fails.
func (l *leases) look(ctx context.Context) (members []member, holders map[int]string, err error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	keys, err := l.readAll(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read leases: %w", err)
	}
	holders = map[int]string{}
	for key, v := range keys {
		if name, ok := strings.CutPrefix(key, "m."+l.fold+"."); ok {
			members = append(members, member{name, v.Refuses})
		} else if shard, err := strconv.Atoi(strings.TrimPrefix(key, l.fold+".")); err == nil {
			holders[shard] = v.Instance
		}
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return members, holders, nil
}

// readAll reads the keys of the fold with one request if the answer can hold them. If not, holders and members come
// from two requests, which see two moments.
func (l *leases) readAll(ctx context.Context) (map[string]lease, error) {
	keys := map[string]lease{}
	subjects := []string{
		schema.KeySubject(schema.LeaseBucket, l.fold+".*"), schema.KeySubject(schema.LeaseBucket, "m."+l.fold+".*"),
	}
	err := l.read(ctx, map[string]any{"multi_last": subjects}, keys)
	if !errors.Is(err, errTooMany) {
		return keys, err
	}
	for _, subject := range subjects { // the bucket has one message for each key, so each of them is the last
		if err := l.read(ctx, map[string]any{"next_by_subj": subject, "seq": 1, "batch": math.MaxInt32},
			keys); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// read adds to keys the messages of one batched direct get.
func (l *leases) read(ctx context.Context, request map[string]any, keys map[string]lease) error {
	inbox := l.conn.NewInbox()
	replies, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }() // fails only when the connection is closed
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	subject := "$JS.API.DIRECT.GET." + schema.BucketStream(schema.LeaseBucket)
	if err := l.conn.PublishRequest(subject, inbox, data); err != nil {
		return err
	}
	for {
		m, err := replies.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // the end of the batch; no messages
			return nil
		case "413":
			return errTooMany
		default:
			return fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
		key := strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), schema.KeySubject(schema.LeaseBucket, ""))
		deleted := m.Header.Get("KV-Operation") != "" || m.Header.Get(jetstream.MarkerReasonHeader) != ""
		var v lease
		if !deleted && json.Unmarshal(m.Data, &v) == nil {
			keys[key] = v
		}
	}
}

func (l *leases) value(refuses ...int) []byte {
	data, _ := json.Marshal(lease{l.instance, refuses}) // text and numbers cannot fail
	return data
}

// request bounds one request to a quarter of the TTL: a lease is renewed several times before it expires.
func (l *leases) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.ttl/4)
}

// join writes or renews this instance's membership.
func (l *leases) join(ctx context.Context) error {
	ctx, cancel := l.request(ctx)
	defer cancel()
	_, err := l.kv.Put(ctx, l.memberKey(), l.value(l.refuses...))
	return err
}

func (l *leases) leave(ctx context.Context) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	_ = l.kv.Delete(ctx, l.memberKey()) // if it fails, the key expires
}

// acquire takes the lease of a shard that nobody holds.
func (l *leases) acquire(ctx context.Context, shard int) (revision uint64, err error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	return l.kv.Create(ctx, l.shardKey(shard), l.value())
}

func (l *leases) release(ctx context.Context, shard int, revision uint64) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	_ = l.kv.Delete(ctx, l.shardKey(shard), jetstream.LastRevision(revision)) // if it fails, the key expires
}

// keep renews a lease until ctx ends or the lease is lost, because another instance holds it or because NATS did not
// answer in time. revision is that of the latest renewal.
func (l *leases) keep(ctx context.Context, shard int, revision *uint64) error {
	margin := l.ttl / 5
	until := time.Now().Add(l.ttl - margin)
	for bus.Sleep(ctx, l.ttl/4) {
		sent := time.Now()
		request, cancel := l.request(ctx)
		next, err := l.kv.Update(request, l.shardKey(shard), l.value(), *revision)
		cancel()
		switch {
		case err == nil:
			*revision, until = next, sent.Add(l.ttl-margin)
		case ctx.Err() != nil:
			return nil
		case isWrongSequence(err) && !l.holds(ctx, shard, revision), time.Now().After(until):
			return errLeaseLost
		}
	}
	return nil
}

// holds reports whether this instance still holds the lease after a renewal was refused: the ack of an earlier renewal
// may have been lost. If so, revision becomes that of the stored renewal. Without an answer it returns true: the next
// renewal finds out.
func (l *leases) holds(ctx context.Context, shard int, revision *uint64) bool {
	ctx, cancel := l.request(ctx)
	defer cancel()
	entry, err := l.kv.Get(ctx, l.shardKey(shard))
	if err != nil || entry.Revision() < *revision {
		return err != nil && !errors.Is(err, jetstream.ErrKeyNotFound)
	}
	var v lease
	if json.Unmarshal(entry.Value(), &v) != nil || v.Instance != l.instance {
		return false
	}
	*revision = entry.Revision()
	return true
}

func isWrongSequence(err error) bool {
	const wrongLastSequence, wrongLastSequenceConstant = 10071, 10164
	var refused *jetstream.APIError
	return errors.As(err, &refused) &&
		(refused.ErrorCode == wrongLastSequence || refused.ErrorCode == wrongLastSequenceConstant)
}

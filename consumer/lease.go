package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// leases are who owns which shard of a fold, and who is there to own one. Both are keys of a bucket that forgets a key
// which was not renewed for its TTL. A lease saves work; that a shard is folded once is the checkpoints' matter.
type leases struct {
	kv       jetstream.KeyValue
	conn     *nats.Conn
	fold     string
	instance string
	ttl      time.Duration
	refuses  []int // shards whose state is of a newer program, in order
}

// lease is the value of a key.
type lease struct {
	Instance string `json:"instance"`
	Refuses  []int  `json:"refuses,omitempty"` // of a member: the shards that it cannot read
}

// member is an instance that is there.
type member struct {
	name    string
	refuses []int
}

func openLeases(ctx context.Context, js jetstream.JetStream, fold, instance string) (*leases, error) {
	kv, err := js.KeyValue(ctx, schema.LeaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("the bus has no bucket %s: run gputap stream init", schema.LeaseBucket)
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", schema.LeaseBucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", schema.LeaseBucket, err)
	}
	if status.TTL() < time.Second {
		return nil, fmt.Errorf("bucket %s keeps keys for %s: remove it and run gputap stream init", schema.LeaseBucket, status.TTL())
	}
	return &leases{kv: kv, conn: js.Conn(), fold: schema.Token(fold), instance: instance, ttl: status.TTL()}, nil
}

func (l *leases) key(shard int) string { return l.fold + "." + strconv.Itoa(shard) }
func (l *leases) member() string       { return "m." + l.fold + "." + l.instance }

// look asks who is there and who owns what. A replica answers, which may be behind: who acts on it finds out.
func (l *leases) look(ctx context.Context) (members []member, owners map[int]string, err error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	keys, err := l.all(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read leases: %w", err)
	}
	owners = map[int]string{}
	for key, v := range keys {
		if name, ok := strings.CutPrefix(key, "m."+l.fold+"."); ok {
			members = append(members, member{name, v.Refuses})
		} else if shard, err := strconv.Atoi(strings.TrimPrefix(key, l.fold+".")); err == nil {
			owners[shard] = v.Instance
		}
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return members, owners, nil
}

// errTooMany: JetStream gives the last messages of 1,024 subjects in one answer, and no more.
var errTooMany = errors.New("too many leases for one answer")

// all reads the keys of the fold, in one answer if it holds them. If not, who owns and who is there are two, of two moments: as with
// a replica that is behind, who acts on them finds out.
func (l *leases) all(ctx context.Context) (map[string]lease, error) {
	keys := map[string]lease{}
	subjects := []string{schema.KeySubject(schema.LeaseBucket, l.fold+".*"), schema.KeySubject(schema.LeaseBucket, "m."+l.fold+".*")}
	err := l.ask(ctx, map[string]any{"multi_last": subjects}, keys)
	if !errors.Is(err, errTooMany) {
		return keys, err
	}
	for _, subject := range subjects { // the bucket has one message of each key, so that all of them are the last
		if err := l.ask(ctx, map[string]any{"next_by_subj": subject, "seq": 1, "batch": math.MaxInt32}, keys); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// ask adds to keys what the bucket answers: messages, until one that says that this was all.
func (l *leases) ask(ctx context.Context, what map[string]any, keys map[string]lease) error {
	inbox := l.conn.NewInbox()
	answers, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }() // it fails with the connection
	asked, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if err := l.conn.PublishRequest("$JS.API.DIRECT.GET."+schema.BucketStream(schema.LeaseBucket), inbox, asked); err != nil {
		return err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // all were sent; there are none
			return nil
		case "413":
			return errTooMany
		default:
			return fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
		key := strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), schema.KeySubject(schema.LeaseBucket, ""))
		var v lease
		if m.Header.Get("KV-Operation") == "" && m.Header.Get(jetstream.MarkerReasonHeader) == "" && json.Unmarshal(m.Data, &v) == nil {
			keys[key] = v
		}
	}
}

func (l *leases) value() []byte {
	data, _ := json.Marshal(lease{Instance: l.instance}) // text and numbers cannot fail
	return data
}

// request bounds one call: a lease is renewed several times in its life.
func (l *leases) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.ttl/4)
}

func (l *leases) join(ctx context.Context) error {
	ctx, cancel := l.request(ctx)
	defer cancel()
	data, _ := json.Marshal(lease{l.instance, l.refuses}) // text and numbers cannot fail
	_, err := l.kv.Put(ctx, l.member(), data)
	return err
}

func (l *leases) part(ctx context.Context) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	_ = l.kv.Delete(ctx, l.member()) // its time ends by itself
}

func (l *leases) acquire(ctx context.Context, shard int) (revision uint64, err error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	return l.kv.Create(ctx, l.key(shard), l.value())
}

func (l *leases) release(ctx context.Context, shard int, revision uint64) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	_ = l.kv.Delete(ctx, l.key(shard), jetstream.LastRevision(revision)) // its time ends by itself
}

// errLeaseLost ends an ownership without a checkpoint.
var errLeaseLost = errors.New("lease was lost")

// keep renews a lease until ctx ends, or says that it is lost: to another, or because the bus could not be asked in time.
// revision is of the latest renewal.
func (l *leases) keep(ctx context.Context, shard int, revision *uint64, renewed func()) error {
	until := time.Now().Add(l.ttl - l.ttl/5)
	for sleep(ctx, l.ttl/4) {
		asked := time.Now()
		request, cancel := l.request(ctx)
		next, err := l.kv.Update(request, l.key(shard), l.value(), *revision)
		cancel()
		switch {
		case err == nil:
			*revision, until = next, asked.Add(l.ttl-l.ttl/5)
			renewed()
		case ctx.Err() != nil:
			return nil
		case wrongSequence(err) && !l.mine(ctx, shard, revision), time.Now().After(until):
			return errLeaseLost
		}
	}
	return nil
}

// mine tells a renewal whose answer was lost from a lease that is another's.
func (l *leases) mine(ctx context.Context, shard int, revision *uint64) bool {
	ctx, cancel := l.request(ctx)
	defer cancel()
	entry, err := l.kv.Get(ctx, l.key(shard))
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

package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// leases are who owns which shard of a fold, and who is there to own one. Both are keys of a bucket that forgets a key
// which was not renewed for its TTL. A lease saves work; that a shard is folded once is the checkpoints' matter.
type leases struct {
	kv       jetstream.KeyValue
	fold     string
	instance string
	ttl      time.Duration

	mu      sync.Mutex
	members map[string]bool
	owners  map[int]string // by shard
	changed chan struct{}  // of capacity 1
}

// lease is the value of a key.
type lease struct {
	Instance string `json:"instance"`
}

func openLeases(ctx context.Context, js jetstream.JetStream, fold, instance string) (*leases, error) {
	kv, err := js.KeyValue(ctx, schema.LeaseBucket)
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
	return &leases{
		kv: kv, fold: schema.Token(fold), instance: instance, ttl: status.TTL(), members: map[string]bool{}, owners: map[int]string{},
		changed: make(chan struct{}, 1),
	}, nil
}

func (l *leases) key(shard int) string { return l.fold + "." + strconv.Itoa(shard) }
func (l *leases) member() string       { return "m." + l.fold + "." + l.instance }

// follow keeps members and owners current until ctx ends or the watch does.
func (l *leases) follow(ctx context.Context, log *slog.Logger) error {
	watch, err := l.kv.WatchFiltered(ctx, []string{l.fold + ".*", "m." + l.fold + ".*"})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	defer func() {
		if err := watch.Stop(); err != nil {
			log.Debug("watch of leases ended", "err", err)
		}
	}()
	l.mu.Lock()
	clear(l.members)
	clear(l.owners)
	l.mu.Unlock()
	for {
		select {
		case entry, open := <-watch.Updates():
			if !open {
				return errors.New("watch of leases ended")
			}
			if entry != nil { // nil: all that was there has come
				l.note(entry)
			}
			l.tell()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *leases) note(entry jetstream.KeyValueEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := entry.Operation() == jetstream.KeyValuePut
	if name, ok := strings.CutPrefix(entry.Key(), "m."+l.fold+"."); ok {
		delete(l.members, name)
		if there {
			l.members[name] = true
		}
		return
	}
	shard, err := strconv.Atoi(strings.TrimPrefix(entry.Key(), l.fold+"."))
	if err != nil {
		return
	}
	delete(l.owners, shard)
	var v lease
	if there && json.Unmarshal(entry.Value(), &v) == nil {
		l.owners[shard] = v.Instance
	}
}

func (l *leases) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// look gives who is there and who owns what, as last heard.
func (l *leases) look() (members []string, owners map[int]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.members)), maps.Clone(l.owners)
}

func (l *leases) value() []byte {
	data, _ := json.Marshal(lease{l.instance}) // a text cannot fail
	return data
}

// request bounds one call: a lease is renewed several times in its life.
func (l *leases) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.ttl/4)
}

func (l *leases) join(ctx context.Context) error {
	ctx, cancel := l.request(ctx)
	defer cancel()
	_, err := l.kv.Put(ctx, l.member(), l.value())
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

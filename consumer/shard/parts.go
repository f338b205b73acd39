package shard

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const (
	partBytes      = 512 << 10 // of a state in one message; the default limit of NATS is 1 MiB
	requestsAtOnce = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *store) partSubject(m *manifest, i int) string {
	return c.subject("p." + m.Parts + "." + strconv.Itoa(i))
}

// publish stores n messages in any order. It uses requests, not asynchronous publishing: the library keeps an
// asynchronous message until its ack comes, which may be never.
func (c *store) publish(ctx context.Context, n int, message func(i int) *nats.Msg, opts ...jetstream.PublishOpt) error {
	opts = append(opts, jetstream.WithRetryAttempts(0))
	return concurrently(ctx, n, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		_, err := c.js.PublishMsg(ctx, message(i), opts...)
		if err == nil && c.progress != nil {
			c.progress()
		}
		return err
	})
}

// concurrently calls do with 0 to n-1, a few at once, and returns the first error. After an error it makes no new call.
func concurrently(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var calls sync.WaitGroup
	slots := make(chan struct{}, requestsAtOnce)
	for i := range n {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() {
			if err := do(ctx, i); err != nil {
				fail(err)
			}
			<-slots
		})
	}
	calls.Wait()
	return context.Cause(ctx)
}

// freeOld frees parts that no manifest will name again. After a commit those are the parts of the manifest before,
// which another instance may have been reading until now. At the first commit of an owner, and after a failed one,
// they are all parts but those of the newest manifest. Freed parts become empty messages that JetStream soon expires.
func (c *store) freeOld(ctx context.Context, newest *manifest) {
	var err error
	if c.swept {
		err = c.free(ctx, len(c.before.Sums), func(i int) string { return c.partSubject(&c.before, i) })
	} else {
		err = c.sweep(ctx, newest)
	}
	c.swept, c.before = err == nil, manifest{}
}

// sweep frees the parts of owners up to this one: the epoch follows "p" in the subject. A later owner's parts stay.
func (c *store) sweep(ctx context.Context, newest *manifest) error {
	jsStream, err := c.js.Stream(ctx, schema.StateStream)
	if err != nil {
		return err
	}
	info, err := jsStream.Info(ctx, jetstream.WithSubjectFilter(c.subject("p.>")))
	if err != nil {
		return err
	}
	for i := range newest.Sums {
		delete(info.State.Subjects, c.partSubject(newest, i))
	}
	var orphans []string
	for subject := range info.State.Subjects {
		epoch, _, _ := strings.Cut(strings.TrimPrefix(subject, c.subject("p.")), ".")
		if n, err := strconv.ParseUint(epoch, 10, 64); err == nil && n <= newest.Epoch {
			orphans = append(orphans, subject)
		}
	}
	return c.free(ctx, len(orphans), func(i int) string { return orphans[i] })
}

func (c *store) free(ctx context.Context, n int, subject func(i int) string) error {
	empty := func(i int) *nats.Msg { return &nats.Msg{Subject: subject(i)} }
	return c.publish(ctx, n, empty, jetstream.WithMsgTTL(time.Second))
}

// load reads the state that a manifest names. A replica may be stale, so a part that is missing or different is read
// again; after patience it counts as damaged. A silent NATS is another error than errDamaged.
func (c *store) load(ctx context.Context, m *manifest, patience time.Duration) ([]byte, error) {
	if !m.valid() {
		return nil, fmt.Errorf("manifest of shard %d: %w", c.shard, errDamaged)
	}
	state := make([]byte, 0, m.bytes())
	for i, p := range m.Sums {
		data, err := c.loadPart(ctx, m.Parts+"."+strconv.Itoa(i), p, patience)
		if err != nil {
			return nil, fmt.Errorf("load part %d of %d of shard %d: %w", i+1, len(m.Sums), c.shard, err)
		}
		state = append(state, data...)
	}
	return state, nil
}

func (c *store) loadPart(ctx context.Context, name string, p part, patience time.Duration) ([]byte, error) {
	answered := time.Now()
	var wrongSince time.Time
	for {
		raw, err := c.get(ctx, "p."+name)
		now := time.Now()
		switch {
		case err == nil && len(raw.Data) == p.Bytes && crc32.Checksum(raw.Data, castagnoli) == p.CRC:
			return raw.Data, nil
		case err == nil || errors.Is(err, jetstream.ErrMsgNotFound):
			answered = now
			if wrongSince.IsZero() {
				wrongSince = now
			}
			if now.Sub(wrongSince) > patience {
				return nil, errDamaged
			}
		case now.Sub(answered) > stateTimeout:
			return nil, err
		}
		if !bus.Sleep(ctx, rereadInterval) {
			return nil, ctx.Err()
		}
	}
}

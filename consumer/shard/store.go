package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// manifestForm is the only form of a manifest that exists. A later program may write a higher one: see Options.Rebuild.
const manifestForm = 1

func isNewer(err error) bool { return errors.Is(err, snapshot.ErrVersion) }

// manifest is a checkpoint: it names the parts of a shard's state, up to which message of the stream the state goes,
// and who may write the next manifest. The newest manifest counts; each replaces exactly the one that its writer
// knows.
type manifest struct {
	Form   int    `json:"form"`
	Owner  string `json:"owner"`
	Epoch  uint64 `json:"epoch"` // grows with each claim
	Commit uint64 `json:"commit"`
	Parts  string `json:"parts,omitempty"` // prefix of the parts' subjects
	Sums   []part `json:"sums,omitempty"`
	bus.Position
	Written time.Time `json:"written"`

	revision uint64 // sequence of the manifest's own message; 0: not stored
}

type part struct {
	Bytes int    `json:"bytes"`
	CRC   uint32 `json:"crc32c"`
}

// saved reports whether the manifest names a state, which may be that of an empty shard.
func (m *manifest) saved() bool { return len(m.Sums) > 0 }

func (m *manifest) bytes() (n int) {
	for _, p := range m.Sums {
		n += p.Bytes
	}
	return n
}

// valid reports whether parts of these names and lengths can exist.
func (m *manifest) valid() bool {
	epoch, attempt, _ := strings.Cut(m.Parts, ".")
	return !m.saved() || epoch == schema.Token(epoch) && attempt == schema.Token(attempt) &&
		!slices.ContainsFunc(m.Sums, func(p part) bool { return p.Bytes < 1 || p.Bytes > partBytes })
}

const (
	rereadInterval = 100 * time.Millisecond
	stateTimeout   = 10 * time.Second // for a replica to catch up, and for NATS to store a manifest or a part
)

var (
	// errFenced: another instance has claimed the shard since.
	errFenced = errors.New("another instance owns the shard")
	// errAdopted: the newest manifest is an earlier one of the same owner. Its ack was lost.
	errAdopted = errors.New("an earlier checkpoint was stored")
	// errDamaged: the parts of a checkpoint differ from what its manifest says.
	errDamaged = errors.New("the checkpoint is damaged")
)

// store reads and writes the checkpoints of one fold in one shard. An owner claims it first. A claim and each commit
// publish a manifest with the expected sequence of the manifest before (a fence): after another instance's claim, every
// commit of this one fails with errFenced.
type store struct {
	js    jetstream.JetStream
	fold  string
	shard int

	jsStream jetstream.Stream // looked up once

	attempts uint64   // commits tried since the claim
	inDoubt  bool     // the last manifest may have been stored, or may be stored yet
	swept    bool     // the parts of earlier owners and attempts are freed
	before   manifest // the one before the newest; without parts after they are freed

	writing  time.Duration // how long the parts of the last commit took, unless they had no answer
	progress func()        // called after each stored part; may be nil
}

func (c *store) subject(part string) string { return schema.StateSubject(c.fold, c.shard, part) }

// latest returns the newest manifest that a replica knows, or the zero manifest. A manifest of a newer program comes
// with snapshot.ErrVersion: it can only be replaced.
func (c *store) latest(ctx context.Context) (manifest, error) {
	var m manifest
	raw, err := c.get(ctx, "m")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	err = json.Unmarshal(raw.Data, &m)
	if err != nil || m.Form != manifestForm {
		newer := m.Form > manifestForm
		m, err = manifest{Epoch: m.Epoch}, nil // a damaged manifest is replaced: the stream can rebuild the state
		if newer {
			err = fmt.Errorf("checkpoint of shard %d: %w", c.shard, snapshot.ErrVersion)
		}
	}
	m.revision = raw.Sequence
	return m, err
}

func (c *store) get(ctx context.Context, part string) (*jetstream.RawStreamMsg, error) {
	if c.jsStream == nil {
		jsStream, err := c.js.Stream(ctx, schema.StateStream)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", schema.StateStream, err)
		}
		c.jsStream = jsStream
	}
	return c.jsStream.GetLastMsgForSubject(ctx, c.subject(part))
}

// claim makes owner the only one that can commit; an earlier owner's next commit fails. With rebuild it also replaces
// the manifest of a newer program.
func (c *store) claim(ctx context.Context, owner string, rebuild bool) (manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	for {
		m, err := c.latest(ctx)
		if err == nil || rebuild && isNewer(err) {
			m.Form, m.Owner, m.Epoch, m.Commit = manifestForm, owner, m.Epoch+1, 0
			err = c.put(ctx, &m)
		}
		if err == nil {
			return m, nil
		}
		// a stale replica may have returned an old manifest
		if !errors.Is(err, errFenced) || !bus.Sleep(ctx, rereadInterval) {
			return m, fmt.Errorf("claim shard %d: %w", c.shard, err)
		}
	}
}

// put publishes m over the manifest that it was made from. If an earlier manifest of the same owner turns out to be
// stored, m becomes that one and put returns errAdopted. If put fails after stateTimeout, the outcome is in doubt.
func (c *store) put(ctx context.Context, m *manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: c.subject("m"), Data: data}
	trying, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	recreated := c.inDoubt // the newest manifest was always older than what this owner wrote: the stream was recreated
	for inDoubt := c.inDoubt; ; inDoubt = true {
		request, cancel := context.WithTimeout(trying, bus.RequestTimeout)
		ack, err := c.js.PublishMsg(request, msg,
			jetstream.WithExpectLastSequencePerSubject(m.revision), jetstream.WithRetryAttempts(0))
		cancel()
		if err == nil {
			m.revision = ack.Sequence
			return nil
		}
		if trying.Err() == nil {
			// NATS may have stored the manifest although the ack was lost.
			stored, readErr := c.latest(trying)
			switch newer := readErr == nil && stored.revision > m.revision; {
			case newer && stored.Owner == m.Owner && stored.Epoch == m.Epoch && stored.Commit == m.Commit:
				m.revision = stored.revision
				return nil
			case newer && stored.Owner == m.Owner && stored.Epoch == m.Epoch:
				*m = stored
				return errAdopted
			case newer:
				return errFenced
			case isWrongSequence(err) && !inDoubt: // this owner has written nothing newer, so another one has
				return errFenced
			}
			recreated = recreated && isWrongSequence(err) && readErr == nil && stored.revision < m.revision
			if bus.Sleep(trying, rereadInterval) {
				continue
			}
		}
		if recreated && ctx.Err() == nil {
			return errFenced
		}
		return err
	}
}

// settle finds out whether the last commit was stored, before its parts are freed. It publishes m over itself; if
// another manifest of this owner is stored instead, m becomes that one.
func (c *store) settle(ctx context.Context, m *manifest) error {
	if !c.inDoubt {
		return nil
	}
	again := *m
	c.attempts++
	again.Commit = c.attempts
	if err := c.put(ctx, &again); err != nil && !errors.Is(err, errAdopted) {
		return err
	}
	*m, c.inDoubt = again, false
	return nil
}

// commit makes state the state of the shard up to next's position; then m is the newest manifest. The parts are stored
// before the manifest that names them. No two attempts use the same part names: a connection may deliver a message
// late.
func (c *store) commit(ctx context.Context, m *manifest, next manifest, state []byte) error {
	c.writing = 0
	if err := c.settle(ctx, m); err != nil {
		return fmt.Errorf("commit checkpoint of shard %d: %w", c.shard, err)
	}
	c.freeOld(ctx, m)
	before := *m
	c.attempts++
	next.Form, next.Owner, next.Epoch, next.revision, next.Commit = m.Form, m.Owner, m.Epoch, m.revision, c.attempts
	next.Written = time.Now()
	next.Parts = fmt.Sprintf("%d.%d", m.Epoch, c.attempts)
	next.Sums = nil
	for rest := state; len(rest) > 0; {
		p := rest[:min(len(rest), partBytes)]
		rest = rest[len(p):]
		next.Sums = append(next.Sums, part{len(p), crc32.Checksum(p, castagnoli)})
	}
	start := time.Now()
	err := c.publish(ctx, len(next.Sums), func(i int) *nats.Msg {
		return &nats.Msg{Subject: c.partSubject(&next, i), Data: state[i*partBytes:][:next.Sums[i].Bytes]}
	})
	var refused *jetstream.APIError
	if err == nil || errors.As(err, &refused) {
		c.writing = time.Since(start)
	}
	if err != nil {
		c.swept = false
		return fmt.Errorf("write checkpoint of shard %d: %w", c.shard, err)
	}
	if err := c.put(ctx, &next); err != nil {
		c.inDoubt, c.swept = !errors.Is(err, errFenced), false
		return fmt.Errorf("commit checkpoint of shard %d: %w", c.shard, err)
	}
	*m, c.before = next, before
	return nil
}

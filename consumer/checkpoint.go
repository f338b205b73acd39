package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

const (
	partBytes    = 512 << 10 // of a checkpoint in one message; NATS's own limit is 1 MiB
	partsAtOnce  = 8
	readAgain    = 100 * time.Millisecond
	stateTimeout = 10 * time.Second // for a replica to show what was acked, and for the bus to take a manifest or a part
)

var (
	// errFenced: another instance has claimed the shard since.
	errFenced = errors.New("another instance owns the shard")
	// errAdopted: the newest manifest is an earlier one of the same owner, whose ack was lost.
	errAdopted = errors.New("an earlier checkpoint was stored")
	// errDamaged: the parts of a checkpoint are not what its manifest says.
	errDamaged = errors.New("checkpoint is damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifest is a checkpoint: the shard's state up to a message of its stream, and who may write the next one. The
// newest manifest counts; each replaces exactly the one that its writer knows.
type manifest struct {
	Form     int       `json:"form"`
	Owner    string    `json:"owner"`
	Epoch    uint64    `json:"epoch"` // grows with each claim
	Commit   uint64    `json:"commit"`
	Parts    string    `json:"parts,omitempty"` // what the subjects of its parts begin with
	Sums     []part    `json:"sums,omitempty"`
	Sequence uint64    `json:"sequence"` // last message of the shard's stream that is in the state
	Stored   time.Time `json:"stored"`   // when the bus stored that message
	Created  time.Time `json:"created"`  // when the shard's stream was
	Written  time.Time `json:"written"`

	revision uint64        // sequence of its own message; 0: there is none
	copying  time.Duration // what it took to copy the state, while nothing was folded
}

type part struct {
	Bytes int    `json:"bytes"`
	CRC   uint32 `json:"crc32c"`
}

const manifestForm = 1

// saved reports whether there is a state, be it a blank one.
func (m *manifest) saved() bool { return len(m.Sums) > 0 }

func (m *manifest) bytes() (n int) {
	for _, p := range m.Sums {
		n += p.Bytes
	}
	return n
}

// sound reports whether there can be such parts.
func (m *manifest) sound() bool {
	epoch, attempt, _ := strings.Cut(m.Parts, ".")
	return !m.saved() || epoch == schema.Token(epoch) && attempt == schema.Token(attempt) &&
		!slices.ContainsFunc(m.Sums, func(p part) bool { return p.Bytes < 1 || p.Bytes > partBytes })
}

// checkpoints are those of one fold in one shard.
type checkpoints struct {
	js    jetstream.JetStream
	fold  string
	shard int

	jsStream jetstream.Stream // looked up once

	attempts uint64   // at commits since the claim
	doubt    bool     // the last one may have been stored, or be stored yet
	swept    bool     // what owners and attempts before have left is freed
	before   manifest // the one before the newest; without parts when they are freed

	writing time.Duration // what the parts of the last commit took, unless they had no answer

	progress func() // told of each part that is stored; nil: nobody is
}

func (c *checkpoints) subject(part string) string { return schema.StateSubject(c.fold, c.shard, part) }

// latest is the newest manifest that a replica knows of; the zero one when there is none. With errNewer it can be
// replaced, and nothing else.
func (c *checkpoints) latest(ctx context.Context) (manifest, error) {
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
		m, err = manifest{Epoch: m.Epoch}, nil // what is damaged is replaced: the stream can rebuild the state
		if newer {
			err = fmt.Errorf("checkpoint of shard %d: %w", c.shard, errNewer)
		}
	}
	m.revision = raw.Sequence
	return m, err
}

func (c *checkpoints) get(ctx context.Context, part string) (*jetstream.RawStreamMsg, error) {
	if c.jsStream == nil {
		jsStream, err := c.js.Stream(ctx, schema.StateStream)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", schema.StateStream, err)
		}
		c.jsStream = jsStream
	}
	return c.jsStream.GetLastMsgForSubject(ctx, c.subject(part))
}

// claim makes owner the only one who can commit. Whoever claimed before finds out at its next commit. To rebuild is to
// take no notice of what a newer program saved.
func (c *checkpoints) claim(ctx context.Context, owner string, rebuild bool) (manifest, error) {
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
		if !errors.Is(err, errFenced) || !sleep(ctx, readAgain) { // a replica may show an old one
			return m, fmt.Errorf("claim shard %d: %w", c.shard, err)
		}
	}
}

// put writes a manifest over the one it was made from. When an earlier one of the same owner turns out to have been
// stored, m is that one, with errAdopted. What it has not settled in stateTimeout is in doubt.
func (c *checkpoints) put(ctx context.Context, m *manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: c.subject("m"), Data: data}
	trying, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	behind := c.doubt // all the while the newest is older than what this owner has written: the states were made anew
	for doubt := c.doubt; ; doubt = true {
		asked, cancel := context.WithTimeout(trying, requestTimeout)
		ack, err := c.js.PublishMsg(asked, msg, jetstream.WithExpectLastSequencePerSubject(m.revision), jetstream.WithRetryAttempts(0))
		cancel()
		if err == nil {
			m.revision = ack.Sequence
			return nil
		}
		if trying.Err() == nil {
			// The bus may have stored it and the ack be lost.
			stored, lookErr := c.latest(trying)
			switch newer := lookErr == nil && stored.revision > m.revision; {
			case newer && stored.Owner == m.Owner && stored.Epoch == m.Epoch && stored.Commit == m.Commit:
				m.revision = stored.revision
				return nil
			case newer && stored.Owner == m.Owner && stored.Epoch == m.Epoch:
				*m = stored
				return errAdopted
			case newer:
				return errFenced
			case wrongSequence(err) && !doubt: // nothing of this owner can be what is newer
				return errFenced
			}
			behind = behind && wrongSequence(err) && lookErr == nil && stored.revision < m.revision
			if sleep(trying, readAgain) {
				continue
			}
		}
		if behind && ctx.Err() == nil {
			return errFenced
		}
		return err
	}
}

func wrongSequence(err error) bool {
	const wrongLastSequence, wrongLastSequenceConstant = 10071, 10164
	var refused *jetstream.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == wrongLastSequence || refused.ErrorCode == wrongLastSequenceConstant)
}

// settle ends the doubt whether the last commit was stored, before anything is written over its parts: m is written again,
// over itself if it still is the newest; if not, what is stored becomes m.
func (c *checkpoints) settle(ctx context.Context, m *manifest) error {
	if !c.doubt {
		return nil
	}
	again := *m
	c.attempts++
	again.Commit = c.attempts
	if err := c.put(ctx, &again); err != nil && !errors.Is(err, errAdopted) {
		return err
	}
	*m, c.doubt = again, false
	return nil
}

// commit makes state the shard's, up to what next says; m is then the newest manifest. Parts are written before the
// manifest that names them, under names that no other attempt uses: what a connection held back may come at any time.
func (c *checkpoints) commit(ctx context.Context, m *manifest, next manifest, state []byte) error {
	c.writing = 0
	if err := c.settle(ctx, m); err != nil {
		return fmt.Errorf("commit checkpoint of shard %d: %w", c.shard, err)
	}
	c.tidy(ctx, m)
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
	err := c.writeParts(ctx, &next, state)
	var refused *jetstream.APIError
	if err == nil || errors.As(err, &refused) {
		c.writing = time.Since(start)
	}
	if err != nil {
		c.swept = false
		return fmt.Errorf("write checkpoint of shard %d: %w", c.shard, err)
	}
	if err := c.put(ctx, &next); err != nil {
		c.doubt, c.swept = !errors.Is(err, errFenced), false
		return fmt.Errorf("commit checkpoint of shard %d: %w", c.shard, err)
	}
	*m, c.before = next, before
	return nil
}

func (c *checkpoints) partSubject(m *manifest, i int) string {
	return c.subject("p." + m.Parts + "." + strconv.Itoa(i))
}

func (c *checkpoints) writeParts(ctx context.Context, m *manifest, state []byte) error {
	return c.publish(ctx, len(m.Sums), func(i int) *nats.Msg {
		return &nats.Msg{Subject: c.partSubject(m, i), Data: state[i*partBytes:][:m.Sums[i].Bytes]}
	})
}

// publish stores so many messages, in any order. Each is a request, which is forgotten with its time: the library keeps what it
// publishes without one until an ack comes.
func (c *checkpoints) publish(ctx context.Context, n int, message func(i int) *nats.Msg, opts ...jetstream.PublishOpt) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	opts = append(opts, jetstream.WithRetryAttempts(0))
	var requests sync.WaitGroup
	underWay := make(chan struct{}, partsAtOnce)
	for i := range n {
		underWay <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		requests.Go(func() {
			asked, cancel := context.WithTimeout(ctx, stateTimeout)
			defer cancel()
			if _, err := c.js.PublishMsg(asked, message(i), opts...); err != nil {
				fail(err)
			} else if c.progress != nil {
				c.progress()
			}
			<-underWay
		})
	}
	requests.Wait()
	return context.Cause(ctx)
}

// tidy frees parts that no manifest will name any more: those of the one before, which somebody may have been reading until
// now, and once in an ownership and after a commit that failed, all but those of the newest. They become empty messages that
// JetStream lets go soon.
func (c *checkpoints) tidy(ctx context.Context, newest *manifest) {
	var err error
	if c.swept {
		err = c.free(ctx, len(c.before.Sums), func(i int) string { return c.partSubject(&c.before, i) })
	} else {
		err = c.sweep(ctx, newest)
	}
	c.swept, c.before = err == nil, manifest{}
}

// sweep frees what owners up to this one have left: the epoch is the number behind "p". Those after are not its matter.
func (c *checkpoints) sweep(ctx context.Context, newest *manifest) error {
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
	var strays []string
	for subject := range info.State.Subjects {
		of, _, _ := strings.Cut(strings.TrimPrefix(subject, c.subject("p.")), ".")
		if n, err := strconv.ParseUint(of, 10, 64); err == nil && n <= newest.Epoch {
			strays = append(strays, subject)
		}
	}
	return c.free(ctx, len(strays), func(i int) string { return strays[i] })
}

func (c *checkpoints) free(ctx context.Context, n int, subject func(i int) string) error {
	return c.publish(ctx, n, func(i int) *nats.Msg { return &nats.Msg{Subject: subject(i)} }, jetstream.WithMsgTTL(time.Second))
}

// load reads the state of a manifest. A replica may be behind: what is not there, or not what it should be, is asked for
// again, and is damage only when it stays so for patience. A bus that does not answer is no damage.
func (c *checkpoints) load(ctx context.Context, m *manifest, patience time.Duration) ([]byte, error) {
	if !m.sound() {
		return nil, fmt.Errorf("manifest of shard %d: %w", c.shard, errDamaged)
	}
	state := make([]byte, 0, m.bytes())
	for i, p := range m.Sums {
		data, err := c.loadPart(ctx, m.Parts+"."+strconv.Itoa(i), p, patience)
		if err != nil {
			return nil, fmt.Errorf("part %d of %d of shard %d: %w", i+1, len(m.Sums), c.shard, err)
		}
		state = append(state, data...)
	}
	return state, nil
}

func (c *checkpoints) loadPart(ctx context.Context, name string, p part, patience time.Duration) ([]byte, error) {
	answered := time.Now()
	var wrong time.Time // since when the answers are
	for {
		raw, err := c.get(ctx, "p."+name)
		now := time.Now()
		switch {
		case err == nil && len(raw.Data) == p.Bytes && crc32.Checksum(raw.Data, castagnoli) == p.CRC:
			return raw.Data, nil
		case err == nil || errors.Is(err, jetstream.ErrMsgNotFound):
			answered = now
			if wrong.IsZero() {
				wrong = now
			}
			if now.Sub(wrong) > patience {
				return nil, errDamaged
			}
		case now.Sub(answered) > stateTimeout:
			return nil, err
		}
		if !sleep(ctx, readAgain) {
			return nil, ctx.Err()
		}
	}
}

// SavedState is the newest checkpoint of a fold in a shard: what Reader.State of an undisturbed reader would be after
// that message of the shard's stream.
type SavedState struct {
	State    []byte
	Sequence uint64
	Epoch    uint64 // how often the shard was claimed
	Written  time.Time
}

// Saved reads the newest checkpoint. Without one it is empty.
func Saved(ctx context.Context, js jetstream.JetStream, fold string, shard int) (SavedState, error) {
	c := checkpoints{js: js, fold: fold, shard: shard}
	m, err := c.latest(ctx)
	if err != nil {
		return SavedState{}, err
	}
	state, err := c.load(ctx, &m, stateTimeout)
	return SavedState{State: state, Sequence: m.Sequence, Epoch: m.Epoch, Written: m.Written}, err
}

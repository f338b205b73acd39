package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// Plan is what it takes to give a bus the streams that were asked for. Nothing is done before Apply.
type Plan struct {
	Steps    []Step
	Topology schema.Topology // that the bus has then
	Options  StreamOptions   // without zero values

	js       jetstream.JetStream
	now      schema.Topology // none: no shard
	have     map[string]*jetstream.StreamInfo
	reserved int64 // bytes of files that the steps reserve on each server that keeps them
}

// Step is one change.
type Step struct {
	Action string `json:"action"` // create, change, close or shrink
	Name   string `json:"name"`
	Detail string `json:"detail"`

	do func(context.Context) error
}

// slack is what a closed stream keeps reserved beyond what it holds.
const slack = 16 << 20

// PlanStreams looks at the bus. It refuses one that cannot have these streams as far as the bus tells;
// what else is in the way Apply finds out.
func PlanStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) (*Plan, error) {
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, explainAccount(err)
	}
	if err := capable(account, js.Conn().ConnectedServerVersion()); err != nil {
		return nil, err
	}
	p := &Plan{js: js}
	revision, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	now := p.now
	p.Options = p.complete(o, now)
	if err := p.Options.validate(o.MaxBytes); err != nil {
		return nil, err
	}
	p.Topology = now
	switch {
	case now.Shards == 0:
		p.Topology = schema.Topology{Generation: 1, Shards: p.Options.Shards}
	case now.Shards != p.Options.Shards:
		p.Topology = now.Next(p.Options.Shards)
	}
	if err := p.Topology.Validate(); err != nil {
		return nil, fmt.Errorf("%w: remove closed generations with gputap stream rm --generation", err)
	}
	p.streams(revision, o.MaxBytes <= 0)
	return p, p.affordable(account)
}

// look reads the topology, as revision, and the streams of that: somebody else may be changing both.
func (p *Plan) look(ctx context.Context) (revision uint64, err error) {
	for {
		_, before, err := storedTopology(ctx, p.js)
		if err != nil && !errors.Is(err, ErrNoTopology) {
			return 0, err
		}
		if p.have, err = OwnStreams(ctx, p.js); err != nil {
			return 0, err
		}
		if p.now, revision, err = p.current(ctx); err != nil {
			return 0, err
		}
		if before == nil && revision == 0 || before != nil && before.Revision() == revision {
			return revision, nil
		}
	}
}

// current is the topology that the bus has, or is taken to have: one shard when it was set up by a version
// without topologies, none at all when nothing was ever stored.
func (p *Plan) current(ctx context.Context) (t schema.Topology, revision uint64, err error) {
	t, entry, err := storedTopology(ctx, p.js)
	switch first := p.have[schema.StreamName(0)]; {
	case err == nil:
		return t, entry.Revision(), nil
	case !errors.Is(err, ErrNoTopology):
		return t, 0, err
	case first != nil && first.State.LastSeq > 0:
		return schema.Topology{Generation: 1, Shards: 1}, 0, nil
	}
	return schema.Topology{}, 0, nil
}

// complete fills in what was not asked for: what the bus has, else the defaults.
func (p *Plan) complete(o StreamOptions, now schema.Topology) StreamOptions {
	has := StreamOptions{Shards: max(o.NewShards, 1), Replicas: 1, MaxAge: defaultAge, MaxBytes: defaultBytes, Lease: defaultLease}
	if leases := p.have[schema.BucketStream(schema.LeaseBucket)]; leases != nil {
		has.Lease = leases.Config.MaxAge
	}
	if now.Shards > 0 {
		has.Shards = now.Shards
	}
	if first := p.have[schema.StreamName(now.First)]; first != nil && now.Shards > 0 {
		c := first.Config
		has.Replicas, has.MaxAge, has.MaxBytes = c.Replicas, c.MaxAge, c.MaxBytes*int64(now.Shards)
	}
	if o.Shards == 0 {
		o.Shards = has.Shards
	}
	if o.Replicas == 0 {
		o.Replicas = has.Replicas
	}
	if o.MaxAge <= 0 {
		o.MaxAge = has.MaxAge
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = has.MaxBytes
	}
	if o.Lease <= 0 {
		o.Lease = has.Lease
	}
	return o
}

func (o StreamOptions) validate(asked int64) error {
	switch {
	case o.Shards < 1 || o.Shards > schema.MostShards:
		return fmt.Errorf("%d shards: use 1 to %d", o.Shards, schema.MostShards)
	case o.Replicas < 1 || o.Replicas > MostReplicas:
		return fmt.Errorf("%d replicas: use 1 to %d", o.Replicas, MostReplicas)
	case asked > 0 && o.MaxBytes < o.leastBytes():
		return fmt.Errorf("%s of events in %d shards: use --max-bytes %s or more", amount(o.MaxBytes), o.Shards, strings.ReplaceAll(amount(o.leastBytes()), " ", ""))
	}
	return nil
}

// leastBytes is room for two of the largest batches in every shard, and for checkpoints of some size.
func (o StreamOptions) leastBytes() int64 { return max(16<<20, int64(o.Shards)<<20) }

// streams lists the steps: whatever is needed first comes first, so that every step leaves a bus that works
// and that another call completes.
func (p *Plan) streams(revision uint64, keepBytes bool) {
	for _, c := range configs(p.Options) {
		if info := p.have[c.Name]; info != nil && keepBytes {
			c.MaxBytes = info.Config.MaxBytes
		}
		p.stream(c)
	}
	for _, shard := range p.Topology.Numbers() {
		p.stream(shardConfig(shard, p.Options))
	}
	p.topology(revision)
	var shrink []Step
	for _, closed := range p.Topology.Previous {
		for _, shard := range closed.Numbers() {
			shrink = append(shrink, p.closing(schema.StreamName(shard))...)
		}
	}
	p.Steps = append(p.Steps, shrink...) // last: what was under way when a stream was sealed has arrived
}

// stream creates or adjusts one.
func (p *Plan) stream(want jetstream.StreamConfig) {
	info := p.have[want.Name]
	step := Step{Name: want.Name, do: func(ctx context.Context) error { return settleStream(ctx, p.js, want) }}
	had := int64(0)
	switch {
	case info == nil:
		step.Action, step.Detail = "create", describe(want)
	case !sameLimits(info.Config, want):
		step.Action, step.Detail = "change", describe(info.Config)+" → "+describe(want)
		if held := int64(info.State.Bytes); want.Discard == jetstream.DiscardOld && want.MaxBytes < held {
			step.Detail += fmt.Sprintf(": the oldest %s of %s go", about(held-want.MaxBytes), about(held))
		}
		if info.Config.AllowRollup && !want.AllowRollup {
			step.Detail += ", without roll-ups"
		}
		had = info.Config.MaxBytes
	default:
		return
	}
	if want.Storage == jetstream.FileStorage {
		p.reserved += max(want.MaxBytes-had, 0)
	}
	p.Steps = append(p.Steps, step)
}

func describe(c jetstream.StreamConfig) string {
	age := "for ever"
	if c.MaxAge > 0 {
		age = c.MaxAge.String()
	}
	copies := "1 copy"
	if c.Replicas > 1 {
		copies = fmt.Sprint(c.Replicas, " copies")
	}
	return amount(c.MaxBytes) + ", " + age + ", " + copies
}

// amount is exact, in the largest unit that is.
func amount(bytes int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); bytes > 0 && bytes%one == 0 {
			return fmt.Sprint(bytes/one, " ", unit)
		}
	}
	return fmt.Sprint(bytes, " bytes")
}

func (p *Plan) topology(revision uint64) {
	t := p.Topology
	key := schema.MetaBucket + "/" + schema.TopologyKey
	step := Step{Action: "change", Name: key, Detail: fmt.Sprintf("generation %d: %d shards from %d", t.Generation, t.Shards, t.First)}
	if revision == 0 {
		step.Action = "create"
	} else if p.now.Equal(t) {
		return
	}
	step.do = func(ctx context.Context) error { return writeTopology(ctx, p.js, t, revision) }
	p.Steps = append(p.Steps, step)
}

// closing seals a stream of a closed generation, and gives as a step for later what it need not reserve.
func (p *Plan) closing(name string) (shrink []Step) {
	info := p.have[name]
	if info == nil {
		return nil
	}
	if !info.Config.Sealed {
		p.Steps = append(p.Steps, Step{
			Action: "close", Name: name, Detail: fmt.Sprintf("%d messages stay readable", info.State.Msgs),
			do: func(ctx context.Context) error { return seal(ctx, p.js, name) },
		})
	}
	if info.Config.MaxBytes <= int64(info.State.Bytes)+slack {
		return nil
	}
	return []Step{{
		Action: "shrink", Name: name, Detail: "reserve what it holds",
		do: func(ctx context.Context) error { return shrinkStream(ctx, p.js, name) },
	}}
}

func seal(ctx context.Context, js jetstream.JetStream, name string) error {
	return update(ctx, js, name, func(s *jetstream.StreamInfo) bool {
		was := s.Config.Sealed
		s.Config.Sealed = true
		return !was
	})
}

func shrinkStream(ctx context.Context, js jetstream.JetStream, name string) error {
	return update(ctx, js, name, func(s *jetstream.StreamInfo) bool {
		was := s.Config.MaxBytes
		s.Config.MaxBytes = min(was, int64(s.State.Bytes)+slack)
		return s.Config.MaxBytes != was
	})
}

// update changes a stream of a closed generation, if it is there and needs it. It may do so twice: a call
// beside this one may have sealed it in between, and that refuses what was read before.
func update(ctx context.Context, js jetstream.JetStream, name string, change func(*jetstream.StreamInfo) (needed bool)) error {
	for again := true; ; again = false {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err == nil {
			info := s.CachedInfo()
			if !change(info) {
				return nil
			}
			_, err = js.UpdateStream(ctx, info.Config)
		}
		if err != nil && !again {
			return fmt.Errorf("close JetStream stream %s: %w", name, err)
		}
		if err == nil {
			return nil
		}
	}
}

// Apply does it. It may be broken off anywhere: another plan completes it.
func (p *Plan) Apply(ctx context.Context) error {
	done, err := p.try(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, step := range p.Steps {
		if err := step.do(ctx); err != nil {
			return p.explain(err)
		}
	}
	return nil
}

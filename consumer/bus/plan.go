package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// Plan lists the changes that give a bus the requested streams. Nothing changes before Apply.
type Plan struct {
	Steps    []Step
	Topology schema.Topology // after the changes
	Options  StreamOptions   // without zero values

	js       jetstream.JetStream
	now      schema.Topology // no shards: NATS has no topology
	have     map[string]*jetstream.StreamInfo
	reserved int64 // bytes that the steps reserve on each server that stores a copy
}

// Step is one change.
type Step struct {
	Action string `json:"action"` // create, change, close or shrink
	Name   string `json:"name"`
	Detail string `json:"detail"`

	do func(context.Context) error
}

// slack is reserved for a closed stream beyond its contents.
const slack = 16 << 20

// PlanStreams reads the bus and lists the changes. It returns an error if the bus cannot have these streams, as far as
// the account tells; Apply reports refusals of the servers.
func PlanStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) (*Plan, error) {
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, explainAccount(err)
	}
	if err := checkVersion(account, js.Conn().ConnectedServerVersion()); err != nil {
		return nil, err
	}
	p := &Plan{js: js}
	revision, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	p.Options = p.complete(o)
	if err := p.Options.validate(o.MaxBytes); err != nil {
		return nil, err
	}
	p.Topology = p.now
	switch {
	case p.now.Shards == 0:
		p.Topology = schema.Topology{Generation: 1, Shards: p.Options.Shards}
	case p.now.Shards != p.Options.Shards:
		p.Topology = p.now.Next(p.Options.Shards)
	}
	if err := p.Topology.Validate(); err != nil {
		return nil, fmt.Errorf("%w: remove closed generations with gputap stream rm --generation", err)
	}
	p.addSteps(revision, o.MaxBytes <= 0)
	return p, p.checkLimits(account)
}

// read reads the streams and the topology. It repeats while another caller changes the topology.
func (p *Plan) read(ctx context.Context) (revision uint64, err error) {
	for {
		_, before, err := storedTopology(ctx, p.js)
		if err != nil && !errors.Is(err, ErrNoTopology) {
			return 0, err
		}
		if p.have, err = OwnStreams(ctx, p.js); err != nil {
			return 0, err
		}
		p.now, revision, err = storedTopology(ctx, p.js)
		if err != nil && !errors.Is(err, ErrNoTopology) {
			return 0, err
		}
		if before == revision {
			return revision, nil
		}
	}
}

// complete replaces zero values with those of the bus, else with the defaults.
func (p *Plan) complete(o StreamOptions) StreamOptions {
	has := StreamOptions{
		Shards: max(o.NewShards, 1), Replicas: 1, MaxAge: defaultAge, MaxBytes: defaultBytes, Lease: defaultLease,
	}
	if leases := p.have[schema.BucketStream(schema.LeaseBucket)]; leases != nil {
		has.Lease = leases.Config.MaxAge
	}
	if p.now.Shards > 0 {
		has.Shards = p.now.Shards
		if first := p.have[schema.StreamName(p.now.First)]; first != nil {
			c := first.Config
			has.Replicas, has.MaxAge, has.MaxBytes = c.Replicas, c.MaxAge, c.MaxBytes*int64(p.now.Shards)
		}
	}
	o.Shards, o.Replicas = cmp.Or(o.Shards, has.Shards), cmp.Or(o.Replicas, has.Replicas)
	o.MaxAge, o.Lease = cmp.Or(o.MaxAge, has.MaxAge), cmp.Or(o.Lease, has.Lease)
	o.MaxBytes = cmp.Or(o.MaxBytes, has.MaxBytes)
	return o
}

func (o StreamOptions) validate(asked int64) error {
	switch {
	case o.Shards < 1 || o.Shards > schema.MostShards:
		return fmt.Errorf("%d shards: use 1 to %d", o.Shards, schema.MostShards)
	case o.Replicas < 1 || o.Replicas > MostReplicas:
		return fmt.Errorf("%d replicas: use 1 to %d", o.Replicas, MostReplicas)
	case asked > 0 && o.MaxBytes < o.leastBytes():
		return fmt.Errorf("%s of events in %d shards: use --max-bytes %s or more",
			exact(o.MaxBytes), o.Shards, strings.ReplaceAll(exact(o.leastBytes()), " ", ""))
	}
	return nil
}

// leastBytes is room for two of the largest batches in every shard, and for checkpoints.
func (o StreamOptions) leastBytes() int64 { return max(16<<20, int64(o.Shards)<<20) }

// addSteps lists the steps in an order in which the bus works after each of them.
func (p *Plan) addSteps(revision uint64, keepBytes bool) {
	for _, c := range configs(p.Options) {
		if info := p.have[c.Name]; info != nil && keepBytes {
			c.MaxBytes = info.Config.MaxBytes
		}
		p.addStream(c)
	}
	for _, shard := range p.Topology.Numbers() {
		p.addStream(shardConfig(shard, p.Options))
	}
	p.addTopology(revision)
	var shrink []Step
	for _, closed := range p.Topology.Previous {
		for _, shard := range closed.Numbers() {
			shrink = append(shrink, p.addClosing(schema.StreamName(shard))...)
		}
	}
	p.Steps = append(p.Steps, shrink...) // last: batches that were in flight at the sealing have arrived by then
}

// addStream creates or adjusts a stream.
func (p *Plan) addStream(want jetstream.StreamConfig) {
	info := p.have[want.Name]
	step := Step{Name: want.Name, do: func(ctx context.Context) error { return settleStream(ctx, p.js, want) }}
	had := int64(0)
	switch {
	case info == nil:
		step.Action, step.Detail = "create", describe(want)
	case !sameLimits(info.Config, want):
		step.Action, step.Detail = "change", describe(info.Config)+" → "+describe(want)
		if held := int64(info.State.Bytes); want.Discard == jetstream.DiscardOld && want.MaxBytes < held {
			step.Detail += fmt.Sprintf(": evicts the oldest %s of %s", rounded(held-want.MaxBytes), rounded(held))
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

func (p *Plan) addTopology(revision uint64) {
	t := p.Topology
	key := schema.MetaBucket + "/" + schema.TopologyKey
	detail := fmt.Sprintf("generation %d: %d shards from %d", t.Generation, t.Shards, t.First)
	step := Step{Action: "change", Name: key, Detail: detail}
	if revision == 0 {
		step.Action = "create"
	} else if p.now.Equal(t) {
		return
	}
	step.do = func(ctx context.Context) error { return writeTopology(ctx, p.js, t, revision) }
	p.Steps = append(p.Steps, step)
}

// addClosing seals a stream of a closed generation. It returns the step that gives back its unused reservation.
func (p *Plan) addClosing(name string) (shrink []Step) {
	info := p.have[name]
	if info == nil {
		return nil
	}
	if !info.Config.Sealed {
		p.Steps = append(p.Steps, Step{
			Action: "close", Name: name, Detail: fmt.Sprintf("%d messages stay readable", info.State.Msgs),
			do: func(ctx context.Context) error { return sealStream(ctx, p.js, name) },
		})
	}
	if info.Config.MaxBytes <= int64(info.State.Bytes)+slack {
		return nil
	}
	return []Step{{
		Action: "shrink", Name: name, Detail: "reserve only what it holds",
		do: func(ctx context.Context) error { return shrinkStream(ctx, p.js, name) },
	}}
}

func describe(c jetstream.StreamConfig) string {
	age, copies := "for ever", "1 copy"
	if c.MaxAge > 0 {
		age = c.MaxAge.String()
	}
	if c.Replicas > 1 {
		copies = fmt.Sprint(c.Replicas, " copies")
	}
	return exact(c.MaxBytes) + ", " + age + ", " + copies
}

// exact formats an amount without rounding, in the largest unit that allows it.
func exact(bytes int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); bytes > 0 && bytes%one == 0 {
			return fmt.Sprint(bytes/one, " ", unit)
		}
	}
	return fmt.Sprint(bytes, " bytes")
}

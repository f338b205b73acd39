package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	atomicLevel  = 2 // of JetStream's API: atomic publish, nats-server 2.12
	trialPrefix  = "GPUTAP_TRIAL_"
	trialSubject = "gputap.v1.trial."
	trials       = 12 // a free amount is found to 1/4096 of what is asked for
)

// What JetStream answers when it has no room, by its numbers.
const (
	codeUnavailable  jetstream.ErrorCode = 10008
	codeNoPeers      jetstream.ErrorCode = 10005
	codeNoMemory     jetstream.ErrorCode = 10028
	codeNoStorage    jetstream.ErrorCode = 10047
	codeNoStore      jetstream.ErrorCode = 10049
	codeNotClustered jetstream.ErrorCode = 10074
)

// What to do, where it is said in two places.
const (
	remedyNoStorage    = "raise max_file_store of the server, or keep less with --max-bytes"
	remedyNotClustered = "use --replicas 1, or a cluster of at least as many servers"
)

func explainAccount(err error) error {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("the NATS server has no JetStream for this account: add a jetstream block to its configuration: %w", err)
	}
	return notReady(fmt.Errorf("ask the NATS server for its JetStream: %w", err))
}

// notReady explains a bus that is there and whose JetStream is not.
func notReady(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: has the NATS server a jetstream block in its configuration, and are most servers of the cluster up?", err)
	}
	if isCode(err, codeUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: are most servers of the cluster up? When they have just started, wait some seconds", err)
	}
	return err
}

func capable(account *jetstream.AccountInfo, version string) error {
	if account.API.Level < atomicLevel {
		return fmt.Errorf("the NATS server is too old (%s, JetStream API level %d): checkpoints need level %d: update it to nats-server 2.12 or later",
			version, account.API.Level, atomicLevel)
	}
	return nil
}

// affordable is what can be told without a try: the kind of server, and an account's limits.
func (p *Plan) affordable(account *jetstream.AccountInfo) error {
	if p.Options.Replicas > 1 && !p.clustered() {
		return fmt.Errorf("%d replicas need a cluster of servers, and this is a single one: %s", p.Options.Replicas, remedyNotClustered)
	}
	limit := account.Limits.MaxStore
	need := p.reserved * int64(p.Options.Replicas)
	if left := limit - int64(account.ReservedStore); limit >= 0 && need > left {
		return fmt.Errorf("the streams reserve %s of storage more (all copies) and the account has %s left of %s: "+
			"raise the limits of the account, or keep less with --max-bytes", about(need), about(max(left, 0)), about(limit))
	}
	return nil
}

// about is an amount for a person who makes room.
func about(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

func (p *Plan) clustered() bool { return p.js.Conn().ConnectedClusterName() != "" }

// try has a single server reserve all of it at once, before anything is changed. A cluster places each
// stream by itself, which no trial foretells. What it tries with is gone only after done: JetStream may fail to
// create a stream in the moment in which it removes its only one.
func (p *Plan) try(ctx context.Context) (done func(), err error) {
	if p.clustered() || p.reserved == 0 {
		return func() {}, nil
	}
	id := nuid.Next() // others may try at the same time
	c := streamConfig(trialPrefix+id, trialSubject+id)
	c.MaxBytes = 1
	if _, err := p.js.CreateStream(ctx, c); err != nil {
		return nil, p.explain(fmt.Errorf("try to create a stream: %w", err))
	}
	done = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		_ = removeStream(ctx, p.js, c.Name) // it reserves a byte, and gputap stream rm takes it along
	}
	fits := func(bytes int64) (bool, error) {
		c.MaxBytes = bytes
		_, err := p.js.UpdateStream(ctx, c)
		if isCode(err, codeNoStorage) {
			return false, nil
		}
		return err == nil, err
	}
	free, err := p.free(fits)
	if err == nil {
		_, err = fits(1)
	}
	if err != nil {
		done()
		return nil, fmt.Errorf("try to reserve %s: %w", about(p.reserved), err)
	}
	if free < p.reserved {
		done()
		return nil, fmt.Errorf("the streams reserve %s of storage more and the server has about %s left: %s",
			about(p.reserved), about(free), remedyNoStorage)
	}
	return done, nil
}

// free is what fits, up to what is needed.
func (p *Plan) free(fits func(int64) (bool, error)) (free int64, err error) {
	if all, err := fits(p.reserved); all || err != nil {
		return p.reserved, err
	}
	step := p.reserved
	for range trials {
		if step /= 2; step == 0 {
			break
		}
		some, err := fits(free + step)
		if err != nil {
			return 0, err
		}
		if some {
			free += step
		}
	}
	return free, nil
}

// explain adds to what a server refused in the middle why, and what to do.
func (p *Plan) explain(err error) error {
	o := p.Options
	switch {
	case isCode(err, codeNotClustered):
		return fmt.Errorf("%w: %s", err, remedyNotClustered)
	case isCode(err, codeNoPeers):
		return fmt.Errorf("%w: fewer than %d servers of the cluster with JetStream can take it: start more of them, use fewer --replicas, "+
			"or, when storage is short, raise max_file_store or keep less with --max-bytes", err, o.Replicas)
	case isCode(err, codeNoStorage):
		return fmt.Errorf("%w: all streams reserve %s more: %s, and try again", err, about(p.reserved), remedyNoStorage)
	case isCode(err, codeNoMemory):
		return fmt.Errorf("%w: leases need %s: raise max_memory_store of the server", err, about(maxLeases))
	}
	return err
}

// worthRetrying is how many times what a server refuses with err should be tried again, a second apart.
func worthRetrying(err error) int {
	switch {
	case isCode(err, codeNoPeers) && strings.Contains(err.Error(), "peer offline"):
		return 5 // another server of the cluster may have just started
	case errors.Is(err, context.DeadlineExceeded):
		return 1 // a cluster answers nobody when two create a stream with other limits at once
	case isCode(err, codeNoStore):
		return 1 // the directory of the server's last stream may have just been taken away
	}
	return 0
}

func isCode(err error, code jetstream.ErrorCode) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == code
}

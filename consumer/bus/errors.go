package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Error codes of JetStream for a request that the servers have no room for.
const (
	codeUnavailable  jetstream.ErrorCode = 10008
	codeNoPeers      jetstream.ErrorCode = 10005
	codeNoMemory     jetstream.ErrorCode = 10028
	codeNoStorage    jetstream.ErrorCode = 10047
	codeNoStore      jetstream.ErrorCode = 10049
	codeNotClustered jetstream.ErrorCode = 10074
)

// minAPILevel is that of nats-server 2.12, which the configuration of the checkpoint stream needs (atomic publish).
const minAPILevel = 2

const (
	remedyNotClustered = "use --replicas 1, or a cluster with at least as many servers"
	smallerStreams     = "use a smaller --max-bytes"
)

func explainAccount(err error) error {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("the NATS server has no JetStream for this account: add a jetstream block to its "+
			"configuration: %w", err)
	}
	return explainUnavailable(fmt.Errorf("read the JetStream account: %w", err))
}

// explainUnavailable adds a remedy when NATS answers and JetStream does not.
func explainUnavailable(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: add a jetstream block to the server's configuration; in a cluster, check that most "+
			"servers run", err)
	}
	if isCode(err, codeUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: check that most servers of the cluster run; servers that have just started need "+
			"some seconds", err)
	}
	return err
}

func checkVersion(account *jetstream.AccountInfo, version string) error {
	if account.API.Level < minAPILevel {
		return fmt.Errorf("the NATS server %s is too old (JetStream API level %d, need %d): update it to "+
			"nats-server 2.12 or later", version, account.API.Level, minAPILevel)
	}
	return nil
}

// checkLimits compares the plan with the limits of the account, and with a single server. Only the servers know their
// own room: they refuse a stream that does not fit.
func (p *Plan) checkLimits(account *jetstream.AccountInfo) error {
	if p.Options.Replicas > 1 && p.js.Conn().ConnectedClusterName() == "" {
		return fmt.Errorf("%d replicas need a cluster, and this is a single server: %s", p.Options.Replicas,
			remedyNotClustered)
	}
	limit := account.Limits.MaxStore
	need := p.reserved * int64(p.Options.Replicas)
	if left := limit - int64(account.ReservedStore); limit >= 0 && need > left {
		return fmt.Errorf("the streams reserve %s more storage (all copies) and the account has %s left of %s: %s",
			rounded(need), rounded(max(left, 0)), rounded(limit),
			cmp.Or(p.Options.MoreRoom, "raise the limits of the account, or "+smallerStreams))
	}
	return nil
}

// rounded formats an amount for a person who makes room.
func rounded(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// explain adds the cause and the remedy to an error of a step.
func (p *Plan) explain(err error) error {
	switch {
	case isCode(err, codeNotClustered):
		return fmt.Errorf("%w: %s", err, remedyNotClustered)
	case isCode(err, codeNoPeers):
		return fmt.Errorf("%w: fewer than %d servers of the cluster with JetStream can take it: start more servers, "+
			"use fewer --replicas, or, if storage is short, raise max_file_store or %s", err, p.Options.Replicas,
			smallerStreams)
	case isCode(err, codeNoStorage):
		return fmt.Errorf("%w: this change reserves %s more in all: %s", err, rounded(p.reserved),
			cmp.Or(p.Options.MoreRoom, "raise max_file_store of the server, or "+smallerStreams+
				", and run gputap stream init again"))
	case isCode(err, codeNoMemory):
		return fmt.Errorf("%w: leases need %s: raise max_memory_store of the server", err, rounded(maxLeases))
	}
	return err
}

// retriesOf returns how many times a refused request is worth another try, one second apart.
func retriesOf(err error) int {
	switch {
	case isCode(err, codeNoPeers) && strings.Contains(err.Error(), "peer offline"):
		return 5 // another server of the cluster may have just started
	case errors.Is(err, context.DeadlineExceeded):
		return 1 // a cluster answers nobody when two callers create a stream with different limits at once
	case isCode(err, codeNoStore):
		return 1 // the server may have just removed the directory of its last stream
	}
	return 0
}

func isCode(err error, code jetstream.ErrorCode) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == code
}

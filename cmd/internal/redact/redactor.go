package redact

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Redactor redacts the parts of one recording. One goroutine uses it at a time.
type Redactor struct {
	names   *Names
	decoder *schema.Decoder
	batch   schema.Batch
	data    []byte
	log     *slog.Logger
}

// New returns a Redactor with a new random key.
func New(log *slog.Logger) *Redactor {
	return &Redactor{names: NewNames(), decoder: schema.NewDecoder(), log: log}
}

// ErrLeftOut is wrapped by the error for a part whose names are not known: it must be left out.
var ErrLeftOut = errors.New("its names cannot be replaced")

// Message returns a redacted message, which is valid until the next call.
func (r *Redactor) Message(m *recording.Message) (recording.Message, error) {
	out := *m
	var err error
	b := &r.batch
	r.data, err = r.decoder.Redact(r.data[:0], m.Data, b, r.names.Of)
	if err == nil && m.Subject != schema.Subject(m.Shard, b.Cluster, b.Host, b.Kind) {
		err = errors.New("the batch names another host, shard or kind than its subject")
	}
	if err != nil {
		return out, fmt.Errorf("message %d of shard %d: %w: %w", m.Sequence, m.Shard, ErrLeftOut, err)
	}
	host := schema.PrivateHost
	if b.Kind == schema.KindRank {
		host = schema.PrivateJob
	}
	out.Data = r.data
	cluster := r.names.Of(schema.PrivateCluster, b.Cluster)
	out.Subject = schema.Subject(m.Shard, cluster, r.names.Of(host, b.Host), b.Kind)
	return out, nil
}

// Section returns a redacted section of state.
func (r *Redactor) Section(s recording.Section) (out recording.Section, err error) {
	fold := leak.New(leak.Config{})
	if s.Fold != fold.Name() {
		return out, fmt.Errorf("state of fold %s: %w", s.Fold, ErrLeftOut)
	}
	p := consumer.NewReplay(s.Shard, fold, true, r.log)
	if err := p.Restore(s); err != nil {
		return out, fmt.Errorf("redact the state of host %q: %w", s.Host, err)
	}
	p.Redact(r.names.Of)
	cluster, host := r.names.Of(schema.PrivateCluster, s.Cluster), r.names.Of(schema.PrivateHost, s.Host)
	found := false
	err = p.Sections(func(one recording.Section) error {
		if one.Cluster == cluster && one.Host == host {
			out, found = one, true
			out.Data = append([]byte(nil), one.Data...)
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("redact the state of host %q: it is empty", s.Host)
	}
	return out, err
}

// Selection returns a redacted selection.
func (r *Redactor) Selection(s recording.Selection) recording.Selection {
	s.Cluster, s.Host = r.names.Of(schema.PrivateCluster, s.Cluster), r.names.Of(schema.PrivateHost, s.Host)
	s.Job, s.Redacted = r.names.Of(schema.PrivateJob, s.Job), true
	return s
}

package fold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

const (
	publishTimeout = 2 * time.Second
	publishRetry   = 200 * time.Millisecond
	alertPatience  = 20 * time.Second // longer than a cluster needs to elect leaders after a restart
)

// Alerts publishes the alerts that fire and clear. After a restart a fold raises the same alerts again, under the same
// ids. Equal message ids make JetStream store each change once, within the deduplication window of GPUTAP_OUT.
type Alerts struct {
	js       jetstream.JetStream
	fold     string
	log      *slog.Logger
	patience time.Duration // how long to retry; after that, one attempt per alert until one is stored
	gaveUp   atomic.Bool
	*prometheus.CounterVec
}

// NewAlerts returns Alerts of a fold. They have a metric, which the caller registers.
func NewAlerts(js jetstream.JetStream, fold string, log *slog.Logger) *Alerts {
	return &Alerts{js: js, fold: fold, log: log, patience: alertPatience,
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts(metric.Opts("gputap_consumer_notifications_total",
			prometheus.Labels{"consumer": fold})), []string{"sink", "result"})}
}

// Publish stores one alert. It blocks the goroutine that applies batches; alerts are rare. The end of ctx ends its
// attempts.
func (a *Alerts) Publish(ctx context.Context, one alert.Alert) {
	reported := a.gaveUp.Load()
	until := time.Now().Add(a.patience)
	result, err := a.send(&one)
	for err != nil && !a.gaveUp.Load() && time.Now().Before(until) && bus.Sleep(ctx, publishRetry) {
		result, err = a.send(&one)
	}
	a.gaveUp.Store(err != nil)
	a.WithLabelValues("nats", result).Inc()
	if err != nil && !reported {
		a.log.Warn("alert not stored; trying once per new alert until NATS stores one", "rule", one.Rule, "host",
			one.Host, "err", err)
	}
}

func (a *Alerts) send(one *alert.Alert) (result string, err error) {
	data, err := json.Marshal(one)
	if err != nil {
		return "failed", fmt.Errorf("encode alert: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	message := &nats.Msg{Subject: schema.AlertSubject(a.fold, one.Cluster, one.Host), Data: data,
		Header: a.headers(one)}
	ack, err := a.js.PublishMsg(ctx, message, jetstream.WithMsgID(one.ID+"/"+one.State),
		jetstream.WithRetryAttempts(0))
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return "unstored", err // subscribers received it
	case err != nil:
		return "failed", err
	case ack.Duplicate:
		return "known", nil
	}
	return "stored", nil
}

// headers returns the attributes of CloudEvents 1.0 in binary mode.
func (a *Alerts) headers(one *alert.Alert) nats.Header {
	subject := one.Rule
	if one.PID > 0 {
		subject = fmt.Sprintf("%s/%d", one.Rule, one.PID)
	}
	h := nats.Header{}
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-type": "gputap.alert." + one.State, "ce-id": one.ID + "/" + one.State,
		"ce-source":  "/gputap/" + a.fold + "/" + schema.Token(one.Cluster) + "/" + schema.Token(one.Host),
		"ce-subject": subject, "ce-time": one.Time.Format(time.RFC3339Nano), "content-type": "application/json",
	} {
		h.Set(name, value)
	}
	return h
}

// storedAlerts returns a function that reads all alerts that NATS keeps, each in its last state.
func storedAlerts(nc *nats.Conn) func(context.Context) ([]alert.Alert, error) {
	return func(ctx context.Context) ([]alert.Alert, error) {
		list, err := answer.NewFleet(nc).AlertHistory(ctx, query.Question{}, time.Unix(0, 0))
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
}

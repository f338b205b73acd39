package fold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const (
	publishTimeout = 2 * time.Second
	publishRetry   = 200 * time.Millisecond
	alertPatience  = 20 * time.Second // longer than a cluster needs to elect leaders after a restart
)

// alerts publishes the alerts that a fold raises. After a restart the fold raises the same alerts again. Equal message
// ids make JetStream store each alert once, within the deduplication window of GPUTAP_OUT.
type alerts struct {
	js       jetstream.JetStream
	fold     string
	log      *slog.Logger
	patience time.Duration // how long to retry; after that, one attempt per alert until one is stored
	gaveUp   atomic.Bool
	*prometheus.CounterVec
}

func newAlerts(js jetstream.JetStream, fold string, log *slog.Logger) *alerts {
	return &alerts{js: js, fold: fold, log: log, patience: alertPatience,
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gputap_" + fold + "_notifications_total",
			Help: "Published alerts by result: stored, known (a duplicate), unstored (no stream accepts alerts) or " +
				"failed.",
		}, []string{"sink", "result"})}
}

// publish stores one alert. It blocks the goroutine that applies batches; alerts are rare.
func (a *alerts) publish(ctx context.Context, alert anomaly.Alert) {
	reported := a.gaveUp.Load()
	until := time.Now().Add(a.patience)
	result, err := a.send(&alert)
	for err != nil && !a.gaveUp.Load() && time.Now().Before(until) && bus.Sleep(ctx, publishRetry) {
		result, err = a.send(&alert)
	}
	a.gaveUp.Store(err != nil)
	a.WithLabelValues("nats", result).Inc()
	if err != nil && !reported {
		a.log.Warn("alert not stored; trying once per new alert until NATS stores one", "rule", alert.Rule, "host",
			alert.Host, "err", err)
	}
}

func (a *alerts) send(alert *anomaly.Alert) (result string, err error) {
	data, err := json.Marshal(alert)
	if err != nil {
		return "failed", fmt.Errorf("encode alert: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	subject := schema.AlertSubject(a.fold, alert.Cluster, alert.Host)
	ack, err := a.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}},
		jetstream.WithMsgID(messageID(alert)), jetstream.WithRetryAttempts(0))
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

// messageID returns the same id whenever the same batch raises the same alert.
func messageID(a *anomaly.Alert) string {
	return strings.Join([]string{
		a.Rule, a.Cluster, a.Host, a.Evidence.Boot, fmt.Sprint(a.PID, a.TID, a.Time.UnixNano()), a.Symbol, a.Address,
	}, "/")
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/schema"
)

const (
	publishTimeout = 2 * time.Second
	publishRetry   = 200 * time.Millisecond
	alertPatience  = 20 * time.Second // longer than a cluster needs to elect leaders after a restart
	shown          = 20               // alerts per report
)

// alerts publishes the detector's alerts. After a restart the fold raises the same alerts again. Equal message ids
// make JetStream store each alert once, within the deduplication window of GPUTAP_OUT.
type alerts struct {
	js       jetstream.JetStream
	log      *slog.Logger
	patience time.Duration // how long to retry; after that, one attempt per alert until one is stored
	*prometheus.CounterVec

	mu     sync.Mutex
	gaveUp bool
	latest []anomaly.Alert // the newest alerts since the last report
	since  int
}

func newAlerts(js jetstream.JetStream, log *slog.Logger) *alerts {
	return &alerts{js: js, log: log, patience: alertPatience,
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gputap_anomaly_notifications_total",
			Help: "Published alerts by result: stored, known (a duplicate), unstored (no stream accepts alerts) or " +
				"failed.",
		}, []string{"sink", "result"})}
}

// publish stores one alert. It blocks the goroutine that applies batches; alerts are rare.
func (a *alerts) publish(ctx context.Context, alert anomaly.Alert) {
	a.mu.Lock()
	a.since++
	a.latest = append(a.latest[max(0, len(a.latest)-shown+1):], alert)
	reported := a.gaveUp
	a.mu.Unlock()
	result, err := a.insist(ctx, &alert)
	a.WithLabelValues("nats", result).Inc()
	if err != nil && !reported {
		a.log.Warn("alert not stored; trying once per new alert until NATS stores one", "rule", alert.Rule, "host",
			alert.Host, "err", err)
	}
}

// insist retries until the alert is stored. If NATS stores none, it gives up after patience, and from then on tries
// once per alert until one is stored.
func (a *alerts) insist(ctx context.Context, alert *anomaly.Alert) (result string, err error) {
	for until := time.Now().Add(a.patience); ; {
		result, err = a.send(alert)
		a.mu.Lock()
		a.gaveUp = err != nil && (a.gaveUp || time.Now().After(until))
		over := err == nil || a.gaveUp
		a.mu.Unlock()
		if over {
			return result, err
		}
		select {
		case <-time.After(publishRetry):
		case <-ctx.Done():
			return result, err
		}
	}
}

func (a *alerts) send(alert *anomaly.Alert) (result string, err error) {
	data, err := json.Marshal(alert)
	if err != nil {
		return "failed", fmt.Errorf("encode alert: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	subject := schema.AlertSubject("anomaly", alert.Cluster, alert.Host)
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

// report prints the alerts raised since the last report.
func (a *alerts) report(w io.Writer, _ []*anomaly.Detector) {
	a.mu.Lock()
	latest, since := a.latest, a.since
	a.latest, a.since = nil, 0
	a.mu.Unlock()
	if since == 0 {
		fmt.Fprintf(w, "no new alerts\n\n")
		return
	}
	t := app.NewTable("TIME", "SEVERITY", "RULE", "HOST", "PID", "COMMAND", "BYTES", "MESSAGE")
	for _, x := range latest {
		t.Row(x.Time.UTC().Format(time.RFC3339), x.Severity, x.Rule, x.Host, x.PID, x.Comm, app.Amount(x.Bytes),
			x.Message)
	}
	t.Write(w)
	fmt.Fprintf(w, "%d new alerts\n\n", since)
}

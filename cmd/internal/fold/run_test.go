package fold

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

// TestACommandFromStartToDrain runs a consumer as its main does, against a nats-server.
func TestACommandFromStartToDrain(t *testing.T) {
	bus := bustest.Run(t, &server.Options{JetStream: true}).ClientURL()
	var out strings.Builder
	p := &app.Process{Name: "gputap-leak", Metrics: prometheus.NewRegistry(), Stdout: &out, Stderr: io.Discard,
		Log: slog.New(slog.DiscardHandler)}
	args := []string{"--nats.url", bus, "--consumer.display_interval", "1h", "--log.level", "error"}
	cfg, err := config.Load(p.Name, args, config.DefaultLeakCommand())
	if err != nil {
		t.Fatal(err)
	}
	js, stop, err := p.Start(t.Context(), cfg.NATS, config.Metrics{}, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	url, stopServing, err := p.Serve(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stopServing()
	if err := eventbus.EnsureStreams(t.Context(), js, eventbus.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	host := consumertest.Memory(t, "gpu-1")
	host.Process(7, 1, "python3").Alloc(7, 0x1000, 70<<20, 100, 5)
	if _, err := js.Publish(t.Context(), schema.Subject(0, "test", "gpu-1", schema.KindMemory),
		host.Message()); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	tracker := &watched{Tracker: leak.New(leak.Config{}), applied: make(chan struct{}, 8)}
	go func() {
		done <- serve(ctx, p, cfg.Consumer, js, func() *watched { return tracker },
			func(w io.Writer, folds []*watched) {
				for _, f := range folds {
					fmt.Fprintln(w, app.Bytes(f.Report().Totals.LiveBytes))
				}
			}, func(*consumer.Consumer) *silence { return nil })
	}()
	select {
	case <-tracker.applied:
	case <-time.After(time.Minute):
		t.Fatal("the batch was not applied")
	}
	for path, want := range map[string]string{"/readyz": "ok", "/metrics": "gputap_consumer_batches_total"} {
		if body := get(t, url+path); !strings.Contains(body, want) {
			t.Errorf("%s answers %.100q", path, body)
		}
	}
	checkPage(t, p.Metrics)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if out.String() != "70.00 MiB\n" {
		t.Errorf("the last report is %q", out.String())
	}
}

// checkPage compares the page of a consumer that owns a shard with the table. Only what has not happened is absent.
func checkPage(t *testing.T, page prometheus.Gatherer) {
	t.Helper()
	families, err := page.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range metric.Check(families) {
		t.Error(difference)
	}
	shown := map[string]bool{}
	for _, f := range families {
		shown[f.GetName()] = true
	}
	for _, f := range metric.Families {
		switch f.Name {
		case "gputap_consumer_questions_total", "gputap_consumer_notifications_total",
			"gputap_consumer_summaries_total", "gputap_consumer_series_overflow_total":
		default:
			if f.Component == metric.Consumer && !shown[f.Name] {
				t.Errorf("%s is in the table and not on the page", f.Name)
			}
		}
	}
}

// watched says when it has applied something.
type watched struct {
	*leak.Tracker
	applied chan struct{}
}

func (w *watched) Apply(b *schema.Batch) error {
	defer func() { w.applied <- struct{}{} }()
	return w.Tracker.Apply(b)
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

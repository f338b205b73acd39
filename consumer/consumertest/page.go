package consumertest

import (
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gputap/gputap/schema/metric"
)

// Page returns the text of a scrape of the collector. It fails if schema/metric does not describe the page.
func Page(tb testing.TB, c prometheus.Collector) []byte {
	tb.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, difference := range metric.Check(families) {
		tb.Error(difference)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		tb.Fatalf("scrape: %d: %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

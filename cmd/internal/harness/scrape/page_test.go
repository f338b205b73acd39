package scrape

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestSumAddsTheSeriesOfOneMetric(t *testing.T) {
	const text = `# HELP a_total x
a_total{shard="0",op="free"} 3
a_total{shard="1",op="free_async"} 4
a_total_more 5
b 2
`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte(text))
	}))
	defer server.Close()
	page, err := Get(server.Listener.Addr().String(), "a_")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		values []string
		want   float64
	}{{nil, 7}, {[]string{"free"}, 3}, {[]string{"free", "free_async"}, 7}, {[]string{"alloc"}, 0}} {
		if got := page.Sum("a_total", row.values...); got != row.want {
			t.Errorf("%q: %v, want %v", row.values, got, row.want)
		}
	}
	if got, known := page["b"]; known {
		t.Errorf("a metric without the prefix is %v, want none", got)
	}
}

func TestParseRejectsInvalidNumbers(t *testing.T) {
	if page, err := parse("c many\n", ""); err == nil {
		t.Errorf("parsed %v", page)
	}
}

func TestBodyReportsTheStatus(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := Body(server.URL); err == nil {
		t.Error("a 404 is no error")
	}
}

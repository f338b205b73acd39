package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const httpTimeout = 10 * time.Second

// Serve answers /metrics, /livez and /readyz until stop; "" serves nothing. url is where.
func (p *Process) Serve(ctx context.Context, addr string) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("serve /metrics on %s: %w (choose another address, or none)", addr, err)
	}
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /livez", ok)
	mux.HandleFunc("GET /readyz", ok)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: httpTimeout}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.Log.Error("/metrics ended", "err", err)
		}
	}()
	url = "http://" + listener.Addr().String()
	p.Log.Info("metrics", "url", url+"/metrics")
	return url, func() {
		_ = server.Close()
		<-ended
	}, nil
}

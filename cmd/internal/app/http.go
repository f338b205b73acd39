package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ReadyWhen adds a condition of /readyz. The check returns nil when it is fulfilled, or an error with the reason.
func (p *Process) ReadyWhen(check func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, check)
}

func (p *Process) ready(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	checks := slices.Clone(p.checks)
	p.mu.Unlock()
	for _, check := range checks {
		if err := check(); err != nil {
			if missing := p.missingPermission(); missing != nil {
				err = fmt.Errorf("%w; %w", err, missing)
			}
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

// Serve serves /metrics, /livez and /readyz at addr until stop is called. It serves nothing if addr is "". It returns
// the URL with the port that was chosen.
func (p *Process) Serve(ctx context.Context, addr string) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", nil, Usage(
			fmt.Errorf("serve /metrics on %s: %w; set --metrics-addr to another address, or to \"\" to disable it",
				addr, err))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", p.ready)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.Log.Error("HTTP server of /metrics failed", "err", err)
		}
	}()
	url = "http://" + listener.Addr().String()
	p.Log.Info("serving /metrics", "url", url+"/metrics")
	return url, func() {
		_ = server.Close()
		<-ended
	}, nil
}

package deploy

import (
	"context"
	"iter"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// TestViewerAsksFolds: with each kind of user, a fold answers a viewer from another account and the admin in its own.
// The fold needs no more rights than its role has. The viewer hears live events and alerts, and reads stored alerts.
func TestViewerAsksFolds(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	jwts, jwtConf := withJWTs(t)
	jwtRoles := map[string]string{"admin": "admin", "leak": "fold", "gpu-1": "host", "viewer": "viewer"}
	for path, client := range map[string]func(user string) config.NATS{
		files + "nats.conf": func(user string) config.NATS { return config.NATS{NKeyFile: seeds[user]} },
		files + "certs.conf": func(user string) config.NATS {
			name := user
			if user != "gpu-1" {
				name += ".gputap"
			}
			return config.NATS{TLS: ours.client(name)}
		},
		jwtConf: func(user string) config.NATS {
			return config.NATS{CredsFile: jwts.creds(jwtRoles[user], user, 0), TLS: config.TLS{CAFile: ours.file}}
		},
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			url := serve(t, path).ClientURL()
			as := func(user string) *nats.Conn {
				c := client(user)
				c.URL = url
				if user == "admin" {
					c.InboxPrefix = "_INBOX.gputap" // it runs gputap too
				}
				nc, js := join(t, user, c, quiet())
				if user == "admin" {
					setUp(t, js)
				}
				return nc
			}
			admin, leak, viewer := as("admin"), as("leak"), as("viewer")
			answering(t, leak)
			asks(t, viewer)
			asks(t, admin)
			if err := leak.LastError(); err != nil {
				t.Errorf("the fold lacks a right: %v", err)
			}
			event := schema.Subject(0, "default", "gpu-1", schema.KindMemory)
			alert := schema.AlertSubject("leak", "default", "gpu-1")
			events, err := viewer.SubscribeSync("gputap.v1.ev.*.default.*.memory")
			check(t, err)
			alerts, err := viewer.SubscribeSync("gputap.v1.out.alert.*.*.*")
			check(t, err)
			check(t, viewer.Flush())
			check(t, as("gpu-1").Publish(event, nil))
			check(t, leak.Publish(alert, []byte(`{"id":"a1","state":"firing","host":"gpu-1"}`)))
			for sub, want := range map[*nats.Subscription]string{events: event, alerts: alert} {
				if m, err := sub.NextMsg(20 * time.Second); err != nil || m.Subject != want {
					t.Errorf("heard %+v, %v; want %s", m, err, want)
				}
			}
			readsAlerts(t, viewer)
			readsAlerts(t, admin)
			if err := viewer.LastError(); err != nil {
				t.Errorf("the viewer lacks a right: %v", err)
			}
		})
	}
}

// answering runs a service with more rows than fit into a message.
func answering(t *testing.T, nc *nats.Conn) {
	t.Helper()
	take := func(*query.Question) (query.Taken, error) {
		return query.Taken{Rows: iter.Seq[any](func(yield func(any) bool) {
			for i := 0; i < 300_000 && yield(i); i++ {
			}
		})}, nil
	}
	s := query.NewService(query.Options{Fold: "leak", Instance: "a", Shards: func() []query.Shard {
		return []query.Shard{{Number: 0, Epoch: 1, Take: take}}
	}}, nc, quiet())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "the fold listens", func() bool { return nc.NumSubscriptions() >= 10 && nc.Flush() == nil })
}

func asks(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := query.NewClient(nc)
	topology, _, err := c.Topology(ctx)
	check(t, err)
	a, err := c.Ask(ctx, "leak", topology.Numbers(), query.Question{What: "x"})
	check(t, err)
	rows, err := query.Rows[int](a)
	check(t, err)
	if len(rows) != 300_000 || rows[299_999] != 299_999 || a.Replies[0].Number < 3 {
		t.Errorf("%d rows, missing %+v", len(rows), a.Missing)
	}
}

// readsAlerts reads the one stored alert, which may be stored after viewers heard it.
func readsAlerts(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // without a right no answer comes
	defer cancel()
	eventually(t, "the alert is stored", func() bool {
		list, err := answer.NewFleet(nc).AlertHistory(ctx, query.Question{}, time.Now().Add(-time.Hour))
		check(t, err)
		return len(list.Items) == 1 && list.Items[0].ID == "a1"
	})
}

package deploy

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// page is a log that a test reads while it is written.
type page struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}

func (p *page) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// TestRejectedConnectionsAreExplained: each rejection is logged once, with the configuration key and the remedy.
func TestRejectedConnectionsAreExplained(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	ours, foreign := newAuthority(t, "ours"), newAuthority(t, "foreign")
	_, strangerSeed := newUser(t)
	stranger := keep(t, "stranger", strangerSeed)
	withCA := config.TLS{CAFile: ours.file}
	mixed := foreign.client("leak.gputap")
	mixed.CAFile = ours.file
	expired := config.TLS{CAFile: ours.file}
	expired.CertFile, expired.KeyFile = ours.issue("leak.gputap", x509.ExtKeyUsageClientAuth, -time.Hour)
	tests := []struct {
		name, file string
		server     string
		life       time.Duration
		client     config.NATS
		want       string
		twice      bool // wait for another attempt
	}{
		{name: "no authority", file: "tls.conf", client: config.NATS{NKeyFile: seeds["leak"]},
			want: "set nats.tls.ca_file"},
		{name: "another authority", file: "tls.conf",
			client: config.NATS{NKeyFile: seeds["leak"], TLS: config.TLS{CAFile: foreign.file}},
			want:   "not signed by the authority in nats.tls.ca_file"},
		{name: "another server", file: "tls.conf", server: "elsewhere",
			client: config.NATS{NKeyFile: seeds["leak"], TLS: withCA},
			want:   "use a name from the certificate in nats.url"},
		{name: "expired server", file: "tls.conf", life: -time.Hour,
			client: config.NATS{NKeyFile: seeds["leak"], TLS: withCA}, want: "renew it on the server"},
		{name: "no nkey", file: "tls.conf", client: config.NATS{TLS: withCA},
			want: "set nats.creds_file, nats.nkey_file"},
		{name: "unknown nkey", file: "tls.conf", client: config.NATS{NKeyFile: stranger, TLS: withCA},
			want: "no user with the credentials in nats.nkey_file", twice: true},
		{name: "no certificate", file: "mtls.conf", client: config.NATS{NKeyFile: seeds["leak"], TLS: withCA},
			want: "set nats.tls.cert_file and nats.tls.key_file", twice: true},
		{name: "foreign certificate", file: "mtls.conf", client: config.NATS{NKeyFile: seeds["leak"], TLS: mixed},
			want: "rejects the client certificate in nats.tls.cert_file"},
		{name: "expired certificate", file: "mtls.conf", client: config.NATS{NKeyFile: seeds["leak"], TLS: expired},
			want: "it must be in date"},
		{name: "certificate without its nkey", file: "mtls.conf", client: config.NATS{TLS: ours.client("leak.gputap")},
			want: "no user with the credentials in nats.tls.cert_file"},
		{name: "certificate of nobody", file: "certs.conf", client: config.NATS{TLS: ours.client("nobody.gputap")},
			want: "no user with the credentials in nats.tls.cert_file"},
		{name: "foreign certificate of a user", file: "certs.conf", client: config.NATS{TLS: mixed},
			want: "nats.tls.cert_file"},
		{name: "TLS where there is none", file: "nats.conf", client: config.NATS{NKeyFile: seeds["leak"], TLS: withCA},
			want: "the server has no TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.server == "" {
				tt.server = "bus"
			}
			if tt.life == 0 {
				tt.life = time.Hour
			}
			asTest(ours, t).forServers(tt.server, tt.life)
			tt.client.URL = serve(t, files+tt.file).ClientURL()
			tt.client.URL = "nats://" + tt.client.URL[strings.Index(tt.client.URL, "//")+2:]
			var log page
			p := process("leak", log.logger())
			nc, _, err := p.Connect(tt.client)
			check(t, err)
			defer nc.Close()
			eventually(t, "a line with "+tt.want, func() bool { return strings.Contains(log.String(), tt.want) })
			if tt.twice {
				eventually(t, "a second attempt", func() bool { return nc.LastError() != nil })
			}
			if err := p.ConnectError(tt.client); !strings.Contains(err.Error(), tt.want) || app.ExitCode(err) != 5 {
				t.Errorf("a program that gives up says %v, with status %d", err, app.ExitCode(err))
			}
			if n := strings.Count(log.String(), "NATS rejects the connection"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
			if nc.IsConnected() {
				t.Error("the connection is accepted")
			}
		})
	}
}

func asTest(a *authority, t *testing.T) *authority {
	other := *a
	other.t = t
	return &other
}

// TestEachTLSVariantAcceptsItsUsers: users get the rights of their roles.
func TestEachTLSVariantAcceptsItsUsers(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	for file, client := range map[string]func(user, dns string) config.NATS{
		"tls.conf": func(user, _ string) config.NATS {
			return config.NATS{NKeyFile: seeds[user], TLS: config.TLS{CAFile: ours.file}}
		},
		"mtls.conf": func(user, dns string) config.NATS {
			return config.NATS{NKeyFile: seeds[user],
				TLS: ours.client(dns)}
		},
		"certs.conf": func(_, dns string) config.NATS { return config.NATS{TLS: ours.client(dns)} },
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			url := serve(t, files+file).ClientURL()
			for user, want := range roles {
				dns := user + ".gputap"
				if strings.HasPrefix(user, "gpu-") {
					dns = user
				}
				c := client(user, dns)
				c.URL = url
				nc, _ := join(t, user, c, quiet())
				if _, err := nc.TLSConnectionState(); err != nil {
					t.Errorf("%s: %v", user, err)
				}
				holdTo(t, nc, want)
			}
		})
	}
}

// TestMissingPermissionIsLoggedOnce: once per connection, however often it is needed.
func TestMissingPermissionIsLoggedOnce(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	s := serve(t, files+"nats.conf")
	var log page
	nc, _ := join(t, "gpu-1", config.NATS{URL: s.ClientURL(), NKeyFile: seeds["gpu-1"]}, log.logger())
	for i := range 3 {
		for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch} {
			check(t, nc.Publish(schema.Subject(0, "default", "gpu-2", kind), nil))
		}
		check(t, nc.Publish("$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.try-"+string(rune('a'+i)), nil))
		_, err := nc.SubscribeSync("_INBOX.other." + string(rune('a'+i)))
		check(t, err)
		check(t, nc.Flush())
	}
	lines := func() int { return strings.Count(log.String(), "this user has no permission to") }
	eventually(t, "all lines", func() bool { return strings.Contains(log.String(), "_INBOX.other") && lines() >= 4 })
	check(t, nc.Publish("last", nil))
	eventually(t, "the last line", func() bool { return strings.Contains(log.String(), "subject=last") })
	if n := lines(); n != 5 {
		t.Errorf("%d lines for five refusals:\n%s", n, log.String())
	}
	for _, want := range []string{
		"no permission to publish\" subject=gputap.v1.ev.0.default.gpu-2.memory remedy=\"grant this user the",
		"no permission to subscribe\" subject=_INBOX.other.a remedy=\"grant this user",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
	check(t, nc.ForceReconnect())
	eventually(t, "a new connection", func() bool { return strings.Contains(log.String(), "reconnected to NATS") })
	check(t, nc.Publish("last", nil))
	eventually(t, "the line again", func() bool { return strings.Count(log.String(), "subject=last") == 2 })
}

// TestWrongInboxPrefixHasItsOwnRemedy: it is the most common mistake.
func TestWrongInboxPrefixHasItsOwnRemedy(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	s := serve(t, files+"nats.conf")
	var log page
	nc, _, err := process("leak", log.logger()).Connect(config.NATS{URL: s.ClientURL(), NKeyFile: seeds["launch"]})
	check(t, err)
	defer nc.Close()
	_, err = nc.SubscribeSync(nc.NewInbox())
	check(t, err)
	eventually(t, "the remedy", func() bool {
		return strings.Contains(log.String(),
			"set nats.inbox_prefix to the prefix")
	})
}

// TestClusterOfThreeServers: cluster.conf gives streams with three replicas, users can connect to any server, and a
// client's certificate is not accepted for a route.
func TestClusterOfThreeServers(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	ours, routes := newAuthority(t, "ours"), newAuthority(t, "routes")
	ours.forServers("bus", time.Hour)
	routeCert, routeKey := routes.issue("route", x509.ExtKeyUsageServerAuth, time.Hour)
	setenv(t, "GPUTAP_ROUTE_CA", routes.file)
	setenv(t, "GPUTAP_ROUTE_CERT", routeCert)
	setenv(t, "GPUTAP_ROUTE_KEY", routeKey)
	nodes := []*server.Server{}
	ports := []int{bustest.Port(t), bustest.Port(t), bustest.Port(t)}
	for i, port := range ports {
		setenv(t, "GPUTAP_SERVER", fmt.Sprintf("gputap-%d", i+1))
		options := load(t, files+"cluster.conf", t.TempDir(), 1<<30)
		if len(options.Routes) != 3 || options.Cluster.TLSConfig == nil {
			t.Fatalf("cluster.conf gives %d routes, TLS %v", len(options.Routes), options.Cluster.TLSConfig)
		}
		options.Cluster.Host, options.Cluster.Port = "127.0.0.1", port
		options.Routes = nil
		for _, other := range ports {
			route := fmt.Sprint("nats-route://127.0.0.1:", other)
			options.Routes = append(options.Routes, server.RoutesFromStr(route)...)
		}
		nodes = append(nodes, launch(t, options))
	}
	for _, n := range nodes {
		if !n.ReadyForConnections(time.Minute) {
			t.Fatal("a server of the cluster did not start")
		}
	}
	first := nodes[0]
	url := first.ClientURL()
	_, js := join(t, "admin", config.NATS{URL: url, NKeyFile: seeds["admin"], TLS: ours.client("admin.gputap")},
		quiet())
	eventually(t, "streams of three replicas", func() bool { // until the cluster has a leader
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return bus.EnsureStreams(ctx, js, bus.StreamOptions{Replicas: 3, MaxBytes: 64 << 20}) == nil
	})
	hostNC, host := join(t, "gpu-1", config.NATS{URL: nodes[1].ClientURL(), NKeyFile: seeds["gpu-1"],
		TLS: ours.client("gpu-1")}, quiet())
	readerNC, reader := join(t, "reader-default", config.NATS{URL: nodes[2].ClientURL(),
		NKeyFile: seeds["reader-default"], TLS: ours.client("reader")}, quiet())
	live, err := readerNC.SubscribeSync("gputap.v1.ev.*.default.>")
	check(t, err)
	check(t, readerNC.Flush())
	subject := schema.Subject(0, "default", "gpu-1", schema.KindMemory)
	var heard *nats.Msg
	// until all servers know the subscription
	eventually(t, "a host's batch, which is heard on another server", func() bool {
		if _, err := host.Publish(t.Context(), subject, nil, jetstream.WithRetryAttempts(0)); err != nil {
			return false
		}
		heard, err = live.NextMsg(time.Second)
		return err == nil
	})
	info, err := js.Stream(t.Context(), schema.StreamName(0))
	check(t, err)
	if c := info.CachedInfo().Cluster; c == nil || len(c.Replicas) != 2 {
		t.Errorf("replicas: %+v", c)
	}
	readAll(t, reader, "reader-default", "gputap.v1.ev.*.default.>", info.CachedInfo().State.Msgs)
	if heard.Subject != subject {
		t.Errorf("live on another server: %+v", heard)
	}
	stock(t, js)
	holdReplies(t, js, hostNC, "gpu-1")
	// servers forward answers to what READERS imports: docs/security.md
	holdReplies(t, js, readerNC, "reader-default", "victim")
	route := config.TLS{CertFile: routeCert, KeyFile: routeKey}
	for who, c := range map[string]config.TLS{"a server": route, "a host": ours.client("gpu-1")} {
		if err := handshake(t, first.ClusterAddr().String(), c, routes.file); (err == nil) != (who == "a server") {
			t.Errorf("%s as a route: %v", who, err)
		}
	}
}

// readAll reads all stored messages across servers: a pull may arrive before all servers know the JetStream consumer.
func readAll(t *testing.T, js jetstream.JetStream, user, filter string, messages uint64) {
	t.Helper()
	c, err := js.CreateOrUpdateConsumer(t.Context(), schema.StreamName(0), jetstream.ConsumerConfig{
		Name: user, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second,
		InactiveThreshold: time.Minute,
	})
	check(t, err)
	came := map[uint64]bool{}
	eventually(t, "all that is stored", func() bool {
		batch, err := c.Fetch(int(messages), jetstream.FetchMaxWait(time.Second))
		check(t, err)
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			check(t, err)
			check(t, m.Ack())
			came[meta.Sequence.Stream] = true
		}
		return len(came) == int(messages)
	})
}

// TestServerThatChangesItsAuthorityIsRejected: a reconnect is explained like a first connection.
func TestServerThatChangesItsAuthorityIsRejected(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	options := load(t, files+"tls.conf", t.TempDir(), 1<<30)
	options.Port = bustest.Port(t)
	first := start(t, options)
	var log page
	c := config.NATS{URL: first.ClientURL(), NKeyFile: seeds["leak"], TLS: config.TLS{CAFile: ours.file}}
	nc, _ := join(t, "leak", c, log.logger())
	first.Shutdown()
	first.WaitForShutdown()
	newAuthority(t, "foreign").forServers("bus", time.Hour)
	again := load(t, files+"tls.conf", t.TempDir(), 1<<30)
	again.Port = options.Port
	start(t, again)
	const want = "not signed by the authority in nats.tls.ca_file"
	eventually(t, "a line with "+want, func() bool { return strings.Contains(log.String(), want) })
	if nc.IsConnected() {
		t.Error("the connection is accepted")
	}
}

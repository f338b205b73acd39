package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/bus/bustest"
)

// TestConnectBeforeServerStarts publishes after the first start of the server, and after its restart.
func TestConnectBeforeServerStarts(t *testing.T) {
	t.Parallel()
	port := bustest.Port(t)
	url := fmt.Sprint("nats://127.0.0.1:", port)
	p := &Process{
		Name: "test", Log: slog.New(slog.DiscardHandler), reconnectWait: time.Millisecond,
		reconnectJitter: time.Millisecond,
	}
	nc, js, err := p.Connect(config.NATS{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := js.Publish(t.Context(), "a", nil); err == nil {
		t.Fatal("published without a server")
	}
	for range 2 {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		subscribed, err := nats.Connect(url, nats.RetryOnFailedConnect(true),
			nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan *nats.Msg, 100)
		if _, err := subscribed.ChanSubscribe("a", received); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); len(received) == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("nothing is published: one is %v (%v), the other %v (%v), the server has %d clients",
					nc.Status(), nc.LastError(), subscribed.Status(), subscribed.LastError(), s.NumClients())
			}
			_ = nc.Publish("a", nil) // fails while disconnected, because nothing is buffered
		}
		subscribed.Close()
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// TestSeedIsNeverSent sends only the JWT of a credentials file, whatever the file contains.
func TestSeedIsNeverSent(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	const token = "eyJ0eXAi.eyJqdGki.c2ln"
	block := func(name, text string) string {
		return "-----BEGIN " + name + "-----\n" + text + "\n------END " + name + "------\n"
	}
	whole := block("NATS USER JWT", token) + "\n" + block("USER NKEY SEED", string(seed))
	path := t.TempDir() + "/creds"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &Process{Name: "test", Log: slog.New(slog.DiscardHandler)}
	c := config.NATS{URL: "nats://127.0.0.1:1", CredsFile: path}
	refuses := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "nats.nkey_file") || strings.Contains(err.Error(),
			string(seed)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"a seed": string(seed), "a seed in a block": block("USER NKEY SEED", string(seed)), "a JWT": token,
		"nothing":                 "",
		"without lines of dashes": token + "\n" + string(seed) + "\n",
		"the seed first":          block("USER NKEY SEED", string(seed)) + block("NATS USER JWT", token),
	} {
		write(text)
		_, _, err := p.Connect(c)
		if refuses(name, err); ExitCode(err) != 2 {
			t.Errorf("%s: ends with %d", name, ExitCode(err))
		}
	}
	write(whole)
	nc, _, err := p.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if sent, err := nc.Opts.UserJWT(); sent != token || err != nil {
		t.Errorf("%q is sent, %v", sent, err)
	}
	write(string(seed))
	sent, err := nc.Opts.UserJWT()
	if refuses("a seed, later", err); sent != "" {
		t.Errorf("%q is sent", sent)
	}
}

// TestReconnectsAreSpread keeps a fleet from reconnecting at the same instant.
func TestReconnectsAreSpread(t *testing.T) {
	t.Parallel()
	p := &Process{Name: "test", Log: slog.New(slog.DiscardHandler)}
	nc, _, err := p.Connect(config.NATS{URL: "nats://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	o := nc.Opts
	if o.CustomReconnectDelayCB == nil {
		t.Fatal("the delay is that of nats.go")
	}
	least, most := time.Hour, time.Duration(0)
	for range 200 {
		d := o.CustomReconnectDelayCB(1)
		least, most = min(least, d), max(most, d)
	}
	if least < 100*time.Millisecond || most-least < time.Second {
		t.Errorf("it waits %v to %v", least, most)
	}
	if o.MaxReconnect >= 0 || !o.RetryOnFailedConnect || o.ReconnectBufSize >= 0 {
		t.Errorf("it gives up after %d tries, tries at first: %v, buffers %d bytes", o.MaxReconnect,
			o.RetryOnFailedConnect, o.ReconnectBufSize)
	}
}

// TestMovesAreSpread keeps the clients of a server that dies from connecting to the others at the same instant.
func TestMovesAreSpread(t *testing.T) {
	t.Parallel()
	dies := clustered(t, nil)
	stays := clustered(t, server.RoutesFromStr("nats://"+dies.ClusterAddr().String()))
	const clients = 20
	came := make(chan time.Time, clients)
	for range clients {
		p := &Process{Name: "test", Log: slog.New(slog.DiscardHandler)}
		nc, _, err := p.Connect(config.NATS{URL: dies.ClientURL()})
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for end := time.Now().Add(time.Minute); len(nc.DiscoveredServers()) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no other server is heard of")
			}
		}
		moved := nc.StatusChanged(nats.CONNECTED)
		go func() {
			<-moved
			came <- time.Now()
		}()
	}
	dies.Shutdown()
	var first, last time.Time
	for i := range clients {
		select {
		case last = <-came:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d came to the other server", i, clients)
		}
		if i == 0 {
			first = last
		}
	}
	if n := stays.NumClients(); n != clients {
		t.Errorf("%d are on the other server, want %d", n, clients)
	}
	if spread := last.Sub(first); spread < moveJitter/5 { // less than once in 10¹⁰ runs
		t.Errorf("all came within %v", spread)
	}
}

// clustered starts a server that tells its clients the addresses of the others.
func clustered(t *testing.T, routes []*url.URL) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: -1},
		Routes: routes, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	return s
}

// TestMissingPermissionExplainsTimeout makes a request that the server ignores because of permissions. Errors and
// /readyz name the permission until the next connection.
func TestMissingPermissionExplainsTimeout(t *testing.T) {
	t.Parallel()
	const asks = "$JS.API.STREAM.INFO.KV_gputap_meta"
	s := bustest.Run(t, &server.Options{Users: []*server.User{{Username: "u", Password: "p",
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.>"}}}}}})
	p := &Process{
		Name: "test", Log: slog.New(slog.DiscardHandler), reconnectWait: time.Millisecond,
		reconnectJitter: time.Millisecond,
	}
	c := config.NATS{URL: strings.Replace(s.ClientURL(), "://", "://u:p@", 1)}
	nc, _, err := p.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	later, _, err := p.Connect(c) // any connection may lack the permission
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	p.ReadyWhen(func() error { return errors.New("no shard is being read yet") })
	ready := func() string {
		answer := httptest.NewRecorder()
		p.ready(answer, nil)
		return answer.Body.String()
	}
	eventually := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within a minute; /readyz answers %s", what, ready())
			}
		}
	}
	eventually("both are connected", func() bool { return nc.IsConnected() && later.IsConnected() })
	noAnswer := fmt.Errorf("read the topology: %w", context.DeadlineExceeded)
	if err := p.ExplainTimeout(noAnswer); !errors.Is(err, noAnswer) {
		t.Errorf("before the rejection it is %v", err)
	}
	if err := nc.Publish(asks, nil); err != nil {
		t.Fatal(err)
	}
	eventually("the rejection", func() bool { return !errors.Is(p.ExplainTimeout(noAnswer), noAnswer) })
	for _, err := range []error{noAnswer, nats.ErrTimeout} {
		if err := p.ExplainTimeout(err); !strings.Contains(err.Error(),
			"publish to "+asks+": this user has no permission") || !strings.Contains(err.Error(), "credentials") {
			t.Errorf("it is %v", err)
		}
	}
	if other := errors.New("x"); !errors.Is(p.ExplainTimeout(other), other) || p.ExplainTimeout(nil) != nil {
		t.Error("it replaces an error that is not a timeout")
	}
	if text := ready(); !strings.Contains(text, "no shard is being read yet; ") || !strings.Contains(text, asks) {
		t.Errorf("/readyz answers %s", text)
	}
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	eventually("the permission is forgotten", func() bool {
		return errors.Is(p.ExplainTimeout(noAnswer), noAnswer) && !strings.Contains(ready(), asks)
	})
}

func TestRefusedConnectionIsNamed(t *testing.T) {
	t.Parallel()
	p := &Process{links: []*link{{dialErr: nats.ErrNoServers}}}
	err := p.ConnectError(config.NATS{URL: "nats://127.0.0.1:1"})
	if ExitCode(err) != 5 || !strings.Contains(err.Error(), "at nats://127.0.0.1:1: connection refused; start") {
		t.Errorf("it is %v", err)
	}
}

package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

// listening starts a server with a stream of one event, and returns the variables of its credential file.
func listening(t *testing.T, dir string, c config.Embedded) (js jetstream.JetStream, credential map[string]string,
	log *strings.Builder) {
	t.Helper()
	log = &strings.Builder{}
	s, err := Start(dir, c, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	nc, js, err := s.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		s.Stop()
		if _, err := os.Stat(filepath.Join(dir, credentialName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the credential outlives its server: %v", err)
		}
	})
	_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "GPUTAP_EV_000",
		Subjects: []string{"gputap.v1.ev.0.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "gputap.v1.ev.0.c.h.memory", []byte("event")); err != nil {
		t.Fatal(err)
	}
	_, file := s.Listening()
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the credential's file: %v, %v", info, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	credential = map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			credential[name] = value
		}
	}
	return js, credential, log
}

func attach(t *testing.T, credential map[string]string, more ...nats.Option) *nats.Conn {
	t.Helper()
	options := append(more, nats.UserInfo(credential["NATS_USER"], credential["NATS_PASSWORD"]))
	nc, err := nats.Connect(credential["NATS_URL"], options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestListenerRequiresCredential(t *testing.T) {
	t.Parallel()
	_, credential, log := listening(t, t.TempDir(), config.Embedded{Listen: "127.0.0.1:0"})
	url := credential["NATS_URL"]
	for name, option := range map[string]nats.Option{
		"nobody": nil, "a guess": nats.UserInfo(reader, "x"), "no password": nats.UserInfo(reader, ""),
		"another user": nats.UserInfo("me", credential["NATS_PASSWORD"]), "the program": nats.UserInfo(insider,
			credential["NATS_PASSWORD"]),
		"the program without a password": nats.UserInfo(insider, ""),
		"a token":                        nats.Token(credential["NATS_PASSWORD"]),
	} {
		if nc, err := nats.Connect(url, option); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s can connect: %v, %v", name, nc, err)
		}
	}
	attach(t, credential)
	if len(credential["NATS_PASSWORD"]) < 20 || strings.Contains(log.String(), credential["NATS_PASSWORD"]) {
		t.Errorf("the password is short or logged:\n%s", log.String())
	}
}

// TestReadersCanOnlyRead reads by subscription, by an ordered and by a pull consumer. Every write is rejected.
func TestReadersCanOnlyRead(t *testing.T) {
	t.Parallel()
	inside, credential, _ := listening(t, t.TempDir(), config.Embedded{Listen: "localhost:0"})
	nc := attach(t, credential)
	live, err := nc.SubscribeSync("gputap.v1.ev.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Publish(t.Context(), "gputap.v1.ev.0.c.h.launch", []byte("live")); err != nil {
		t.Fatal(err)
	}
	if m, err := live.NextMsg(20 * time.Second); err != nil || string(m.Data) != "live" {
		t.Errorf("subscription: %v, %v", m, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ordered, err := js.OrderedConsumer(t.Context(), "GPUTAP_EV_000", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := ordered.Next(jetstream.FetchMaxWait(20 * time.Second)); err != nil || string(m.Data()) != "event" {
		t.Errorf("ordered consumer: %v, %v", m, err)
	}
	pull, err := js.CreateConsumer(t.Context(), "GPUTAP_EV_000",
		jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := pull.Next(jetstream.FetchMaxWait(20 * time.Second)); err != nil || m.DoubleAck(t.Context()) != nil {
		t.Errorf("pull consumer: %v", err)
	}
	for _, subject := range []string{
		"gputap.v1.ev.0.c.h.memory", "gputap.v1.out.alert.leak.c.h", "gputap.v1.state.leak.0.m",
		"$KV.gputap_meta.topology", "x",
		"$JS.API.STREAM.DELETE.GPUTAP_EV_000", "$JS.API.STREAM.PURGE.GPUTAP_EV_000", "$JS.API.STREAM.CREATE.X",
		"$JS.API.STREAM.UPDATE.GPUTAP_EV_000",
		"$JS.API.STREAM.MSG.DELETE.GPUTAP_EV_000", "$JS.API.CONSUMER.DELETE.GPUTAP_EV_000.x",
		"$JS.API.CONSUMER.DURABLE.CREATE.GPUTAP_EV_000.x",
		"$JS.API.STREAM.SNAPSHOT.GPUTAP_EV_000", "_INBOX.x", "$JS.API.CONSUMER.NAMES.GPUTAP_EV_000",
		"$JS.API.CONSUMER.LIST.GPUTAP_EV_000",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(),
			`"`+subject+`"`) {
			t.Errorf("may publish to %s", subject)
		}
	}
	s, err := inside.Stream(t.Context(), "GPUTAP_EV_000")
	if err != nil || s.CachedInfo().State.Msgs != 2 {
		t.Errorf("the stream was changed: %v, %v", s, err)
	}
}

// TestReplySubjectCannotReachStreams sends requests with subjects of streams as reply subjects. No stream changes.
func TestReplySubjectCannotReachStreams(t *testing.T) {
	t.Parallel()
	inside, credential, _ := listening(t, t.TempDir(), config.Embedded{Listen: "127.0.0.1:0"})
	nc := attach(t, credential)
	requests := map[string]string{
		"$JS.API.DIRECT.GET.GPUTAP_EV_000": "x", "$JS.API.DIRECT.GET.GPUTAP_EV_000.gputap.v1.ev.0.c.h.memory": "",
		"$JS.API.STREAM.MSG.GET.GPUTAP_EV_000": `{"seq":1}`, "$JS.API.INFO": "",
		"$JS.API.CONSUMER.MSG.NEXT.GPUTAP_EV_000.mine": "",
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "GPUTAP_EV_000", jetstream.ConsumerConfig{Name: "mine",
		AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"gputap.v1.ev.0.c.h.memory", "$JS.API.STREAM.PURGE.GPUTAP_EV_000",
		"$JS.API.STREAM.DELETE.GPUTAP_EV_000"} {
		for subject, body := range requests {
			if err := nc.PublishRequest(subject, to, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for subject, body := range requests { // the replies to these come after the replies above
		_, _ = nc.Request(subject, []byte(body), 100*time.Millisecond)
	}
	s, err := inside.Stream(t.Context(), "GPUTAP_EV_000")
	if err != nil || s.CachedInfo().State.Msgs != 1 || s.CachedInfo().State.LastSeq != 1 {
		t.Errorf("the stream was changed: %+v, %v", s, err)
	}
}

func TestListenerForOtherMachinesRequiresTLS(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:4222", "[2001:db8::1]:4222"} {
		dir := t.TempDir()
		_, err := Start(dir, config.Embedded{Listen: address}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "--nats-listen-tls-cert") {
			t.Errorf("%s: %v", address, err)
		}
		s, err := Start(dir, config.Embedded{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("the store is still locked after an error: %v", err)
		}
		s.Stop()
	}
	cert, key, pool := certificate(t)
	_, credential, _ := listening(t, t.TempDir(), config.Embedded{Listen: "0.0.0.0:0", TLSCert: cert, TLSKey: key})
	if !strings.HasPrefix(credential["NATS_URL"], "tls://") {
		t.Errorf("URL %s", credential["NATS_URL"])
	}
	nc := attach(t, credential, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	if _, err := nc.TLSConnectionState(); err != nil {
		t.Error(err)
	}
	plain := strings.Replace(credential["NATS_URL"], "tls://", "nats://", 1)
	if _, err := nats.Connect(plain, nats.UserInfo(reader, credential["NATS_PASSWORD"])); err == nil {
		t.Error("a client that does not trust the authority can connect")
	}
	if _, err := nats.Connect(plain, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})); !errors.Is(
		err, nats.ErrAuthorization) {
		t.Errorf("TLS without the credential: %v", err)
	}
}

func TestListenErrorNamesCause(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, c := range map[string]config.Embedded{
		taken.Addr().String(): {Listen: taken.Addr().String()},
		"embedded.listen_tls_cert": {Listen: "127.0.0.1:0", TLSCert: "/no/such.pem",
			TLSKey: "/no/such.key"},
		`embedded.listen: "gpu-1:4222" is not an address`:   {Listen: "gpu-1:4222"},
		`embedded.listen: "4222" is not an address`:         {Listen: "4222"},
		`embedded.listen: "127.0.0.1:x" is not an address`:  {Listen: "127.0.0.1:x"},
		`embedded.listen: "127.0.0.1:-1" is not an address`: {Listen: "127.0.0.1:-1"},
	} {
		dir := t.TempDir()
		if _, err := Start(dir, c, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, credentialName)); err == nil {
			t.Errorf("%s: a credential is left behind", want)
		}
	}
}

// TestCredentialReplacesLeftover does not write through a link that has the name of the credential file.
func TestCredentialReplacesLeftover(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, credentialName)); err != nil {
		t.Fatal(err)
	}
	listening(t, dir, config.Embedded{Listen: "127.0.0.1:0"})
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != "mine" {
		t.Errorf("written through a link: %q, %v", data, err)
	}
}

func TestNoListenerByDefault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Start(dir, config.Embedded{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if address, file := s.Listening(); address != "" || file != "" || s.server.Addr() != nil {
		t.Errorf("listens on %s, credential %s", address, file)
	}
}

func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(certFile, public, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
			0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(public) {
		t.Fatal(fmt.Errorf("no certificate in %s", certFile))
	}
	return certFile, keyFile, pool
}

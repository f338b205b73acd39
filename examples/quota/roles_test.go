package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority signs certificates of one test, for servers and clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	}}
	a.cert.Subject.CommonName = "ours"
	a.file = a.sign(t, a.cert, key)
	return a
}

// sign writes a certificate and its key, the certificate first, into one file.
func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) (path string) {
	t.Helper()
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	check(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	return keep(t, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...))
}

func (a *authority) issue(t *testing.T, name string) (path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
		NotAfter: time.Now().Add(time.Hour),
	}, key)
}

func keep(t *testing.T, data []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(path, data, 0o600))
	return path
}

// secured is a server with a file of deploy/nats and one more user: quota has the permissions of gputap-leak for its
// name.
type secured struct {
	url   string
	ours  *authority
	seeds map[string]string // files of nkeys, by variable
	admin jetstream.JetStream
}

func serve(t *testing.T, file string) *secured {
	t.Helper()
	b := &secured{ours: newAuthority(t), seeds: map[string]string{}}
	cert := b.ours.issue(t, "bus")
	for name, value := range map[string]string{"SERVER": "bus-1", "TLS_CERT": cert, "TLS_KEY": cert,
		"TLS_CA": b.ours.file} {
		t.Setenv("GPUTAP_"+name, value)
	}
	for _, name := range []string{"ADMIN", "LEAK", "ANOMALY", "LAUNCH", "BANDWIDTH", "RECORDER",
		"READER_CLUSTER", "READER_KIND", "GPU_1", "GPU_2"} {
		pair, err := nkeys.CreateUser()
		check(t, err)
		public, err := pair.PublicKey()
		check(t, err)
		seed, err := pair.Seed()
		check(t, err)
		t.Setenv("GPUTAP_NKEY_"+name, public)
		b.seeds[name] = keep(t, seed)
	}
	o, err := server.ProcessConfigFile("../../deploy/nats/" + file)
	check(t, err)
	for _, u := range o.Nkeys {
		if u.Nkey == os.Getenv("GPUTAP_NKEY_LEAK") {
			asQuota(u.Permissions)
		}
	}
	for _, u := range o.Users {
		if u.Username == "leak.gputap" {
			u.Username = "quota.gputap"
			asQuota(u.Permissions)
		}
	}
	o.Host, o.Port, o.StoreDir, o.NoSigs, o.NoLog, o.JetStreamMaxStore = "127.0.0.1", -1, t.TempDir(), true, true, 1<<30
	s, err := server.NewServer(o)
	check(t, err)
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	b.url = s.ClientURL()
	cert = b.ours.issue(t, "admin.gputap")
	options := []nats.Option{nats.RootCAs(b.ours.file), nats.ClientCert(cert, cert)}
	if len(o.Nkeys) > 0 {
		nkey, err := nats.NkeyOptionFromSeed(b.seeds["ADMIN"])
		check(t, err)
		options = append(options, nkey)
	}
	nc, err := nats.Connect(b.url, options...)
	check(t, err)
	t.Cleanup(nc.Close)
	b.admin, err = jetstream.New(nc)
	check(t, err)
	check(t, bus.EnsureStreams(t.Context(), b.admin, bus.StreamOptions{MaxBytes: 64 << 20}))
	host := consumertest.Memory(t, "gpu-1")
	host.Header.Cluster = "default"
	host.Process(7, 1, "python3").Alloc(7, 0x1000, 41<<30, 100, 5)
	_, err = b.admin.Publish(t.Context(), schema.Subject(0, "default", "gpu-1", schema.KindMemory), host.Message())
	check(t, err)
	return b
}

func asQuota(p *server.Permissions) {
	for _, subjects := range [][]string{p.Publish.Allow, p.Publish.Deny, p.Subscribe.Allow} {
		for i := range subjects {
			subjects[i] = strings.ReplaceAll(subjects[i], "leak", "quota")
		}
	}
}

// TestQuotaRunsWithFoldPermissions checks that quota reads events, prints findings and saves its state with the
// permissions of a fold.
func TestQuotaRunsWithFoldPermissions(t *testing.T) {
	program, err := os.Executable()
	check(t, err)
	for file, identity := range map[string]func(*secured) []string{
		"tls.conf":   func(b *secured) []string { return []string{"-nkey", b.seeds["LEAK"]} },
		"certs.conf": func(b *secured) []string { return []string{"-cert", b.ours.issue(t, "quota.gputap")} },
	} {
		t.Run(file, func(t *testing.T) {
			b := serve(t, file)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, append(identity(b), "-nats", b.url, "-ca", b.ours.file)...)
			cmd.Env = append(os.Environ(), asProgram+"=1")
			var log strings.Builder
			cmd.Stderr = &log
			out, err := cmd.StdoutPipe()
			check(t, err)
			check(t, cmd.Start())
			output := bufio.NewScanner(out)
			if !output.Scan() || output.Text() != "gpu-1: user 0  holds 41.0 GiB" {
				t.Errorf("it prints %q", output.Text())
			}
			check(t, cmd.Process.Signal(syscall.SIGTERM))
			if err := cmd.Wait(); err != nil || strings.Contains(log.String(), "Violation") {
				t.Errorf("it ends with %v: %s", err, log.String())
			}
			if saved, err := shard.Saved(t.Context(), b.admin, "quota", 0); err != nil || saved.Sequence != 1 {
				t.Errorf("it has saved %+v, %v", saved, err)
			}
		})
	}
}

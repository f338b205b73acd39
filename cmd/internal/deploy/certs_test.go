package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
)

// authority signs certificates of one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.cert, a.key = template, newPrivate(t)
	der := a.sign(template, a.key)
	var err error
	a.cert, err = x509.ParseCertificate(der)
	check(t, err)
	a.file = keep(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

func newPrivate(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (der []byte) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	check(a.t, err)
	return der
}

// issue issues a certificate for a DNS name that expires after life. A server's certificate is also for 127.0.0.1.
func (a *authority) issue(name string, usage x509.ExtKeyUsage, life time.Duration) (certFile, keyFile string) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(life),
	}
	if usage == x509.ExtKeyUsageServerAuth && name != "elsewhere" {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if name == "route" {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	key := newPrivate(a.t)
	der, err := x509.MarshalECPrivateKey(key)
	check(a.t, err)
	certFile = keep(a.t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.sign(template, key)}))
	return certFile, keep(a.t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// forServers sets the variables with the server's certificate, key and authority that deploy/nats reads.
func (a *authority) forServers(name string, life time.Duration) {
	cert, key := a.issue(name, x509.ExtKeyUsageServerAuth, life)
	setenv(a.t, "GPUTAP_TLS_CERT", cert)
	setenv(a.t, "GPUTAP_TLS_KEY", key)
	setenv(a.t, "GPUTAP_TLS_CA", a.file)
}

// client returns the TLS section of a client whose certificate has this name and which trusts the same authority.
func (a *authority) client(name string) config.TLS {
	cert, key := a.issue(name, x509.ExtKeyUsageClientAuth, time.Hour)
	return config.TLS{CAFile: a.file, CertFile: cert, KeyFile: key}
}

// handshake performs a TLS handshake as a server does that connects a route. With TLS 1.2 it ends with the other side's
// verdict on the client's certificate.
func handshake(t *testing.T, address string, client config.TLS, serverCA string) error {
	t.Helper()
	raw, err := net.Dial("tcp", address)
	check(t, err)
	defer raw.Close()
	own, err := tls.LoadX509KeyPair(client.CertFile, client.KeyFile)
	check(t, err)
	data, err := os.ReadFile(serverCA)
	check(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	c := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, ServerName: "127.0.0.1",
		MaxVersion: tls.VersionTLS12}
	return tls.Client(raw, c).Handshake()
}

func (a *authority) issueServer() (certFile, keyFile string) {
	return a.issue("bus", x509.ExtKeyUsageServerAuth, time.Hour)
}

package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// NATS is the section of the connection to NATS.
type NATS struct {
	URL         string `koanf:"url"`
	Name        string `koanf:"name"`
	CredsFile   string `koanf:"creds_file"`
	NKeyFile    string `koanf:"nkey_file"`
	InboxPrefix string `koanf:"inbox_prefix"`
	TLS         TLS    `koanf:"tls"`
}

// TLS is the section of the certificates and keys of that connection.
type TLS struct {
	CAFile   string `koanf:"ca_file"`
	CertFile string `koanf:"cert_file"`
	KeyFile  string `koanf:"key_file"`
}

// Validate names the first key with a wrong value. It rejects a secret where a path is expected, and its errors repeat
// no value that may be a secret.
func (n NATS) Validate() error {
	switch {
	case strings.Trim(n.URL, ", ") == "":
		return errors.New("nats.url: empty; set it to nats://host:4222")
	case (n.TLS.CertFile == "") != (n.TLS.KeyFile == ""):
		return errors.New("nats.tls.cert_file and nats.tls.key_file: set both or neither")
	case n.CredsFile != "" && n.NKeyFile != "":
		return errors.New("nats.creds_file and nats.nkey_file: both are set; set only one")
	case isSecret(n.CredsFile):
		return errors.New("nats.creds_file: the value is a secret; write it to a file of mode 0600 and set the path " +
			"of the file")
	case isSecret(n.NKeyFile):
		return errors.New("nats.nkey_file: the value is a seed; write it to a file of mode 0600 and set the path of " +
			"the file")
	}
	for i, server := range strings.Split(n.URL, ",") {
		if err := validateServer(server); err != nil {
			return fmt.Errorf("nats.url, server %d: %w", i+1, err)
		}
	}
	return nil
}

func validateServer(server string) error {
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") { // nats.go accepts that
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	switch {
	case err != nil || strings.Contains(u.Host+u.Path+u.RawQuery+u.Fragment, "@"):
		return errors.New("not a URL; use nats://host:4222, and %40 for an at sign in a password")
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("not a NATS URL: %q; use nats://, tls://, ws:// or wss://", u.Scheme+"://"+u.Host)
	case u.Port() != "" && !isPort(u.Port()):
		return fmt.Errorf("port %q is out of range; use 1 to 65535", u.Port())
	case strings.HasPrefix(u.Scheme, "ws"): // a proxy may need a path
		return nil
	case strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "":
		return errors.New("unexpected text after the port; use nats://host:4222, and put credentials before the host " +
			"or into nats.creds_file or nats.nkey_file")
	}
	return nil
}

var schemes = []string{"nats", "tls", "tcp", "ws", "wss"}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// Servers returns URL without passwords and tokens.
func (n NATS) Servers() string { return redacted(n.URL) }

// Credential returns the key that holds this program's credentials, or "".
func (n NATS) Credential() string {
	switch {
	case n.CredsFile != "":
		return "nats.creds_file"
	case n.NKeyFile != "":
		return "nats.nkey_file"
	case strings.Contains(n.URL, "@"):
		return "nats.url"
	case n.TLS.CertFile != "":
		return "nats.tls.cert_file"
	}
	return ""
}

// isSecret reports whether a value is not a path but a seed (S and its type) or the text of a credentials file.
func isSecret(path string) bool {
	path = strings.TrimSpace(path)
	seed := len(path) == 58 && path[0] == 'S' && !strings.ContainsAny(path, "./")
	return seed || strings.HasPrefix(path, "eyJ") || strings.Contains(path, "-----BEGIN")
}

// redacted hides the secrets in a list of servers: also a token of a server without a scheme.
func redacted(servers string) string {
	list := strings.Split(servers, ",")
	for i, s := range list {
		if at := strings.LastIndexByte(s, '@'); at >= 0 && !strings.Contains(s[:at], ":") {
			list[i] = hidden + s[at:]
		}
	}
	return Redact(strings.Join(list, ","))
}

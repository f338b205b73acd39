package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// NATS says where the bus is and how to get in.
type NATS struct {
	URL         string `koanf:"url" doc:"servers, separated by commas"`
	Name        string `koanf:"name" doc:"connection name shown by the server (default: the program's)"`
	CredsFile   string `koanf:"creds_file" doc:"credentials file (JWT and seed)"`
	NKeyFile    string `koanf:"nkey_file" doc:"file of an nkey seed"`
	InboxPrefix string `koanf:"inbox_prefix" doc:"prefix of reply subjects, when permissions name one (default: _INBOX.<program>, of a producer _INBOX.<cluster>.<host>)"`
	TLS         TLS    `koanf:"tls"`
}

// TLS names the files of a connection that is encrypted.
type TLS struct {
	CAFile   string `koanf:"ca_file" doc:"certificate authority of the servers"`
	CertFile string `koanf:"cert_file" doc:"client certificate"`
	KeyFile  string `koanf:"key_file" doc:"key of the client certificate"`
}

// Validate refuses half a client certificate, two identities, and a secret where a path belongs. It never
// repeats a value that may hold one.
func (n NATS) Validate() error {
	switch {
	case strings.Trim(n.URL, ", ") == "":
		return errors.New("nats.url: empty: set it to nats://host:4222")
	case (n.TLS.CertFile == "") != (n.TLS.KeyFile == ""):
		return errors.New("nats.tls.cert_file and nats.tls.key_file: set both or neither")
	case n.CredsFile != "" && n.NKeyFile != "":
		return errors.New("nats.creds_file and nats.nkey_file: set one")
	case isSecret(n.CredsFile):
		return errors.New("nats.creds_file: this is a secret itself: write it into a file of mode 0600 and give its path")
	case isSecret(n.NKeyFile):
		return errors.New("nats.nkey_file: this is a seed itself: write it into a file of mode 0600 and give its path")
	}
	for i, s := range strings.Split(n.URL, ",") {
		u, err := parseServer(s)
		switch {
		case err != nil || strings.Contains(u.Host+u.Path+u.RawQuery+u.Fragment, "@"):
			return fmt.Errorf("nats.url: server %d of the list is no URL: write nats://host:4222, and special characters of a password as %%40", i+1)
		case !slices.Contains(schemes, u.Scheme):
			return fmt.Errorf("nats.url: server %d of the list is none of NATS: write nats://host:4222, tls://host:4222 or wss://host", i+1)
		case u.Port() != "" && !isPort(u.Port()):
			return fmt.Errorf("nats.url: server %d of the list has no port from 1 to 65535: write nats://host:4222", i+1)
		case strings.HasPrefix(u.Scheme, "ws"): // a proxy on the way may want a path
		case strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "":
			return fmt.Errorf("nats.url: server %d of the list has something behind its port: write nats://host:4222, "+
				"and who you are before the host and an @ (%%40 is one of a password), or in nats.creds_file or nats.nkey_file", i+1)
		}
	}
	return nil
}

var schemes = []string{"nats", "tls", "tcp", "ws", "wss"}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// Servers is URL as it may be shown: without passwords and tokens.
func (n NATS) Servers() string { return redacted(n.URL) }

// Credential is the key whose value says who we are, "" when none does.
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

// isSecret knows seeds (S, then what they are for) and the text of credentials from paths.
func isSecret(path string) bool {
	path = strings.TrimSpace(path)
	seed := len(path) == 58 && path[0] == 'S' && !strings.ContainsAny(path, "./")
	return seed || strings.HasPrefix(path, "eyJ") || strings.Contains(path, "-----BEGIN")
}

// redacted hides the secrets of a list of servers, and a server altogether that cannot be read.
func redacted(servers string) string {
	list := strings.Split(servers, ",")
	for i, s := range list {
		u, err := parseServer(s)
		switch {
		case err != nil || strings.Contains(u.Host+u.Path+u.RawQuery+u.Fragment, "@"):
			if strings.Contains(s, "@") {
				list[i] = hidden + s[strings.LastIndexByte(s, '@'):]
			}
		case u.User != nil:
			if _, password := u.User.Password(); !password {
				u.User = url.User(hidden) // a token
			}
			list[i] = u.Redacted()
		}
	}
	return Redact(strings.Join(list, ","))
}

// parseServer reads one server as nats.go does, which takes it without a scheme.
func parseServer(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	return url.Parse(s)
}

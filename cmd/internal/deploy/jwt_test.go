package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/gputap/gputap/config"
)

// issuer holds the accounts of jwt.conf. Their roles are scoped signing keys, one for each file of deploy/nats/jwt.
type issuer struct {
	t     *testing.T
	keys  map[string]string // of accounts
	roles map[string]nkeys.KeyPair
}

// accountOf is the account of each role.
var accountOf = map[string]string{
	"admin": "BUS", "fold": "BUS", "anomaly": "BUS", "recorder": "BUS",
	"host": "HOSTS", "reader": "READERS", "viewer": "READERS",
}

// newIssuer creates operator and accounts, and the accounts.conf that jwt.conf includes.
func newIssuer(t *testing.T, dir string) *issuer {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	check(t, err)
	operatorJWT, err := jwt.NewOperatorClaims(public(t, operator)).Encode(operator)
	check(t, err)
	i := &issuer{t: t, keys: map[string]string{}, roles: map[string]nkeys.KeyPair{}}
	accounts := map[string]*jwt.AccountClaims{}
	for _, name := range []string{"SYS", "BUS", "HOSTS", "READERS"} { // JetStream needs the system account
		i.keys[name] = public(t, newAccount(t))
		accounts[name] = jwt.NewAccountClaims(i.keys[name])
		accounts[name].Name = name
	}
	accounts["BUS"].Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1,
		Consumer: -1}
	i.share(accounts)
	for role, account := range accountOf {
		data, err := os.ReadFile(files + "jwt/" + role + ".json")
		check(t, err)
		scope := jwt.NewUserScope()
		check(t, json.Unmarshal(data, &scope.Template))
		i.roles[role] = newAccount(t)
		scope.Key, scope.Role = public(t, i.roles[role]), role
		accounts[account].SigningKeys.AddScopedSigner(scope)
	}
	conf := fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", operatorJWT,
		i.keys["SYS"])
	for name, claims := range accounts {
		token, err := claims.Encode(operator)
		check(t, err)
		conf += fmt.Sprintf("%s: %q\n", i.keys[name], token)
	}
	check(t, os.WriteFile(filepath.Join(dir, "accounts.conf"), []byte(conf+"}\n"), 0o600))
	return i
}

// share gives the accounts the exports and imports of roles.conf.
func (i *issuer) share(accounts map[string]*jwt.AccountClaims) {
	i.t.Helper()
	data, err := os.ReadFile(files + "roles.conf")
	check(i.t, err)
	types := map[string]jwt.ExportType{"service": jwt.Service, "stream": jwt.Stream}
	export := regexp.MustCompile(`\{ (service|stream): "(.*)",( response_type: Stream,)? accounts: \[ (?:HOSTS, )?\w+ \] \}`)
	imported := regexp.MustCompile(`\{ (service|stream): \{ account: (\w+), subject: "(.*)" \} \}`)
	list := regexp.MustCompile(`(?ms)^(BUS|HOST|READER)_(EXPORTS|IMPORTS): \[(.*?\}) ?\n?\]$`)
	lists := list.FindAllStringSubmatch(string(data), -1)
	for _, list := range lists {
		claims := accounts[map[string]string{"BUS": "BUS", "HOST": "HOSTS", "READER": "READERS"}[list[1]]]
		for _, m := range export.FindAllStringSubmatch(list[3], -1) {
			e := &jwt.Export{Name: m[2], Subject: jwt.Subject(m[2]), Type: types[m[1]]}
			if m[3] != "" {
				e.ResponseType = jwt.ResponseTypeStream
			}
			claims.Exports.Add(e)
		}
		for _, m := range imported.FindAllStringSubmatch(list[3], -1) {
			claims.Imports.Add(&jwt.Import{Name: m[3], Subject: jwt.Subject(m[3]), Account: i.keys[m[2]],
				Type: types[m[1]]})
		}
	}
	bus, hosts, readers := accounts["BUS"], accounts["HOSTS"], accounts["READERS"]
	shared := 1 // the topology is for two accounts
	if e, in := len(bus.Exports)+len(hosts.Exports)+shared, len(hosts.Imports)+len(readers.Imports); len(lists) != 4 ||
		e != in || e < 10 {
		i.t.Fatalf("roles.conf has %d lists, %d exports and %d imports", len(lists), e, in)
	}
}

func newAccount(t *testing.T) nkeys.KeyPair {
	t.Helper()
	account, err := nkeys.CreateAccount()
	check(t, err)
	return account
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	key, err := pair.PublicKey()
	check(t, err)
	return key
}

// creds writes a credentials file for a user of a role that expires after life (0: never).
func (i *issuer) creds(role, name string, life time.Duration) (path string) {
	i.t.Helper()
	user, seed := newUser(i.t)
	claims := jwt.NewUserClaims(user)
	claims.Name, claims.IssuerAccount = name, i.keys[accountOf[role]]
	claims.Tags.Add("cluster:default")
	claims.SetScoped(true)
	if life != 0 {
		claims.Expires = time.Now().Add(life).Unix()
	}
	token, err := claims.Encode(i.roles[role])
	check(i.t, err)
	file, err := jwt.FormatUserConfig(token, seed)
	check(i.t, err)
	return keep(i.t, name+".creds", file)
}

// withJWTs copies jwt.conf into a folder with an accounts.conf.
func withJWTs(t *testing.T) (jwts *issuer, path string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"jwt.conf", "server.conf"} {
		data, err := os.ReadFile(files + name)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return newIssuer(t, dir), filepath.Join(dir, "jwt.conf")
}

// TestJWTUsersHaveTheirRoles: users with JWTs have the rights of their roles, filled in with their own names.
func TestJWTUsersHaveTheirRoles(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	jwts, path := withJWTs(t)
	url := serve(t, path).ClientURL()
	with := func(creds string) config.NATS {
		return config.NATS{URL: url, CredsFile: creds, TLS: config.TLS{CAFile: ours.file}}
	}
	_, admin := join(t, "admin", with(jwts.creds("admin", "admin", 0)), quiet())
	setUp(t, admin)
	_, host := join(t, "gpu-1", with(jwts.creds("host", "gpu-1", 0)), quiet())
	hostAtWork(t, host)
	_, err := admin.Publish(t.Context(), "gputap.v1.ev.0.default.gpu-2.memory", []byte("no batch"))
	check(t, err)
	_, fold := join(t, "leak", with(jwts.creds("fold", "leak", 0)), quiet())
	foldAtWork(t, fold, "leak")
	_, reader := join(t, "reader-default", with(jwts.creds("reader", "reader-default", 0)), quiet())
	readStored(t, reader, "reader-default", "gputap.v1.ev.*.default.>",
		[]string{"gputap.v1.ev.0.default.gpu-1.memory", "gputap.v1.ev.0.default.gpu-2.memory"})

	as := map[string]string{"gpu-1": "host", "leak": "fold", "launch": "fold", "anomaly": "anomaly",
		"reader-default": "reader",
		"recorder":       "recorder", "viewer": "viewer"}
	for user, role := range as {
		t.Run(user, func(t *testing.T) {
			nc, _ := join(t, user, with(jwts.creds(role, user, 0)), quiet())
			holdTo(t, nc, roles[user])
		})
	}
	for name, creds := range map[string]string{
		"of another account": newIssuer(t, t.TempDir()).creds("host", "gpu-1", 0),
		"expired":            jwts.creds("host", "gpu-1", -time.Hour),
	} {
		var log page
		nc, _, err := process("gpu-1", log.logger()).Connect(with(creds))
		check(t, err)
		eventually(t, "creds "+name+" are refused",
			func() bool { return strings.Contains(log.String(), "credentials in nats.creds_file") })
		nc.Close()
	}
}

// TestJWTRolesEqualNkeyRoles: the roles for JWT and for nkeys allow the same, except for their variable names.
func TestJWTRolesEqualNkeyRoles(t *testing.T) {
	conf, err := os.ReadFile(files + "roles.conf")
	check(t, err)
	users, err := os.ReadFile(files + "users-nkey.conf")
	check(t, err)
	for role, like := range map[string]struct{ text, name string }{
		"fold":     {block(t, string(conf), "\nLEAK: {"), "leak"},
		"anomaly":  {block(t, string(conf), "\nANOMALY: {"), "anomaly"},
		"reader":   {block(t, string(conf), "\nREADER_CLUSTER: {"), "reader-default"},
		"recorder": {block(t, string(conf), "\nRECORDER: {"), "recorder"},
		"viewer":   {block(t, string(conf), "\nVIEWER: {"), "viewer"},
		"host":     {block(t, string(users), "nkey: $GPUTAP_NKEY_GPU_1"), "gpu-1"},
	} {
		data, err := os.ReadFile(files + "jwt/" + role + ".json")
		check(t, err)
		filled := strings.NewReplacer("{{name()}}", like.name, "{{tag(cluster)}}", "default").Replace(string(data))
		var p jwt.Permissions
		check(t, json.Unmarshal([]byte(filled), &p))
		var want []string
		for i, quoted := range strings.Split(like.text, `"`) {
			if i%2 == 1 {
				want = append(want, quoted)
			}
		}
		if got := slices.Concat(p.Pub.Allow, p.Pub.Deny, p.Sub.Allow); !slices.Equal(got, want) {
			t.Errorf("%s.json has\n%q, and the role\n%q", role, got, want)
		}
	}
}

// block returns what follows a heading until the brace that closes it.
func block(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, heading)
	if !found {
		t.Fatalf("no %q", heading)
	}
	depth := 1
	for i, r := range rest {
		switch r {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return rest[:i]
			}
		}
	}
	t.Fatalf("%q has no end", heading)
	return ""
}

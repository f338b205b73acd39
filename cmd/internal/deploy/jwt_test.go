package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/gputap/gputap/config"
)

// issuer is an account whose roles are scoped signing keys, one for each file of deploy/nats/jwt.
type issuer struct {
	t       *testing.T
	account string
	roles   map[string]nkeys.KeyPair
}

// newIssuer makes operator and account, and the accounts.conf that jwt.conf includes.
func newIssuer(t *testing.T, dir string) *issuer {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	check(t, err)
	accountID := public(t, newAccount(t))
	claims := jwt.NewAccountClaims(accountID)
	claims.Name = "gputap"
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	i := &issuer{t: t, account: accountID, roles: map[string]nkeys.KeyPair{}}
	paths, err := filepath.Glob(files + "jwt/*.json")
	check(t, err)
	for _, path := range paths {
		role := strings.TrimSuffix(filepath.Base(path), ".json")
		data, err := os.ReadFile(path)
		check(t, err)
		scope := jwt.NewUserScope()
		check(t, json.Unmarshal(data, &scope.Template))
		i.roles[role] = newAccount(t)
		scope.Key, scope.Role = public(t, i.roles[role]), role
		claims.SigningKeys.AddScopedSigner(scope)
	}
	operatorJWT, err := jwt.NewOperatorClaims(public(t, operator)).Encode(operator)
	check(t, err)
	accountJWT, err := claims.Encode(operator)
	check(t, err)
	system := public(t, newAccount(t)) // JetStream does not start without one
	systemJWT, err := jwt.NewAccountClaims(system).Encode(operator)
	check(t, err)
	conf := fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %q, %s: %q }\n",
		operatorJWT, system, system, systemJWT, accountID, accountJWT)
	check(t, os.WriteFile(filepath.Join(dir, "accounts.conf"), []byte(conf), 0o600))
	return i
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

// creds is a credentials file for a user of a role, good for life (0: for ever).
func (i *issuer) creds(role, name string, life time.Duration) (path string) {
	i.t.Helper()
	user, seed := newUser(i.t)
	claims := jwt.NewUserClaims(user)
	claims.Name, claims.IssuerAccount = name, i.account
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

// TestCredentials: the users of JWTs have the rights of the same roles, filled in with their own names.
func TestCredentials(t *testing.T) {
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	dir := t.TempDir()
	for _, name := range []string{"jwt.conf", "server.conf"} {
		data, err := os.ReadFile(files + name)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	jwts := newIssuer(t, dir)
	url := serve(t, filepath.Join(dir, "jwt.conf")).ClientURL()
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

	as := map[string]string{"gpu-1": "host", "leak": "fold", "launch": "fold", "reader-default": "reader"}
	for user, role := range as {
		t.Run(user, func(t *testing.T) {
			nc, _ := join(t, user, with(jwts.creds(role, user, 0)), quiet())
			holdTo(t, nc, roles[user])
		})
	}
	for name, creds := range map[string]string{
		"of another account": newIssuer(t, t.TempDir()).creds("host", "gpu-1", 0), "expired": jwts.creds("host", "gpu-1", -time.Hour),
	} {
		var log page
		nc, _, err := process("gpu-1", log.logger()).Connect(with(creds))
		check(t, err)
		eventually(t, "creds "+name+" are refused", func() bool { return strings.Contains(log.String(), "credentials in nats.creds_file") })
		nc.Close()
	}
}

// TestJWTRolesAreTheRoles: jwt/fold.json is the leak role with the name left open, and so on: what one way of
// knowing users allows the other does.
func TestJWTRolesAreTheRoles(t *testing.T) {
	conf, err := os.ReadFile(files + "roles.conf")
	check(t, err)
	users, err := os.ReadFile(files + "users-nkey.conf")
	check(t, err)
	for role, like := range map[string]struct{ text, name string }{
		"fold":   {block(t, string(conf), "\nLEAK: {"), "leak"},
		"reader": {block(t, string(conf), "\nREADER_CLUSTER: {"), "reader-default"},
		"host":   {block(t, string(users), "nkey: $GPUTAP_NKEY_GPU_1"), "gpu-1"},
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

// block is what follows a heading until the brace that closes it, or the one around it.
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

package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/gputap/gputap/cmd/internal/fold"
)

// programs returns the programs that connect to NATS.
func programs() []string {
	list := []string{"gputap-producer"}
	for _, name := range fold.Names() {
		list = append(list, "gputap-"+name)
	}
	return list
}

// built is the directory that build creates; TestMain removes it.
var built string

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(status)
}

var buildOnce = sync.OnceValues(func() (dir string, err error) {
	if dir = os.Getenv("GPUTAP_BIN"); dir != "" {
		// After Stat, go test runs the tests again when the file has changed.
		for _, p := range append(programs(), "gputap") {
			if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
				return "", err
			}
		}
		return dir, nil
	}
	if dir, err = os.MkdirTemp("", "gputap-test-"); err != nil {
		return "", err
	}
	built = dir
	// Without debug information the linker takes half the time.
	args := []string{"build", "-ldflags", "-s -w", "-o", dir, "github.com/gputap/gputap/cmd/gputap"}
	for _, p := range programs() {
		args = append(args, "github.com/gputap/gputap/cmd/"+p)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return dir, nil
})

// build returns a directory with the programs: GPUTAP_BIN, which make test has just built, or else a new one.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir, err := buildOnce()
	check(t, err)
	return dir
}

// says runs a program until it ends or has printed something, and returns everything that it printed.
func says(t *testing.T, until string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out page
	cmd.Stdout, cmd.Stderr = &out, &out
	check(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Error(err)
			}
			if until != "" && !strings.Contains(out.String(), until) {
				t.Errorf("%s %q does not print %q but\n%s", filepath.Base(program), args, until, out.String())
			}
			return out.String()
		case <-time.After(5 * time.Millisecond):
			if until != "" && strings.Contains(out.String(), until) {
				until = ""
				if err := cmd.Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
					check(t, err)
				}
			}
		}
	}
}

// TestSecretsAreNotPrinted searches everything that every program prints of its configuration and logs at debug level,
// accepted and rejected by the server, for every form in which a secret can be given.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	const password, token = "pa55w0rd", "t0ken-of-mine"
	dir := build(t)
	_, seed := newUser(t)
	seeds := newKeys(t)
	jwts := newIssuer(t, t.TempDir())
	creds := jwts.creds("fold", "leak", 0)
	credsText, err := os.ReadFile(creds)
	check(t, err)
	closed := serve(t, files+"nats.conf").ClientURL()[len("nats://"):]
	open := start(t, &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, Username: "me",
		Password: password,
	}).ClientURL()[len("nats://"):]
	open = open[strings.LastIndexByte(open, '@')+1:]
	secret := []string{password, token, string(bytes.TrimSpace(seed)), "PRIVATE KEY", "eyJ"}
	for line := range strings.Lines(string(credsText)) {
		if len(line) > 40 && !strings.HasPrefix(line, "-") {
			secret = append(secret, strings.TrimSpace(line))
		}
	}
	seedFile, err := os.ReadFile(seeds["leak"])
	check(t, err)
	secret = append(secret, string(seedFile))

	file := keep(t, "gputap.yaml", []byte("nats:\n  url: nats://me:"+password+"@"+open+"\nlog:\n  level: debug\n"))
	short := []string{"--log.level", "debug", "--metrics.addr", ""}
	cases := []struct {
		name, until string // text that ends the run of the program
		env, args   []string
		only        string
	}{
		{name: "printed from a flag", until: "url: nats://me:xxxxx@",
			args: []string{"--print-config", "--nats.url", "nats://me:" + password + "@" + open}},
		{name: "printed from a file", until: "url: nats://me:xxxxx@",
			args: []string{"--print-config", "--config", file}},
		{name: "printed from a variable", until: "url: nats://xxxxx@",
			env: []string{"GPUTAP_NATS__URL=nats://" + token + "@" + open}, args: []string{"--print-config"}},
		{name: "printed without a scheme", until: "me:xxxxx@",
			args: []string{"--print-config", "--nats.url", "me:" + password + "@" + open + ",b:4222"}},
		{name: "printed with files", until: "creds_file: " + creds,
			args: []string{"--print-config", "--nats.creds_file", creds}},
		{name: "a seed for a path", until: "nats.nkey_file: the value is a seed",
			args: []string{"--print-config", "--nats.nkey_file", string(seed)}},
		{name: "creds for a path", until: "nats.creds_file: the value is a secret",
			args: []string{"--nats.creds_file", string(credsText)}},
		{name: "a URL that is none", until: "nats.url, server 2: not a URL",
			args: []string{"--nats.url", "nats://a,nats://me:" + password + "%@b c"}},
		{name: "a port that is none", until: "nats.url, server 1",
			args: []string{"--nats.url", "nats://me:" + password + "/x@" + open}},
		{name: "a URL of two @", until: "nats.url, server 1",
			args: []string{"--nats.url", "nats://me:" + "x/" + password + "@" + open}},
		{name: "refused by password", until: "no user with the credentials in nats.url",
			args: append(short, "--nats.url", "nats://me:"+password+"@"+closed)},
		{name: "refused by token", until: "no user with the credentials in nats.url",
			args: append(short, "--nats.url", "nats://"+token+"@"+open)},
		{name: "refused by creds", until: "the credentials in nats.creds_file",
			args: append(short, "--nats.url", "nats://"+closed, "--nats.creds_file", creds)},
		{name: "refused by nkey", until: "the credentials in nats.nkey_file",
			args: append(short, "--nats.url", "nats://"+closed, "--nats.nkey_file", keep(t, "seed", seed))},
		{name: "nobody there", until: "NATS is unreachable",
			args: append(short, "--nats.url", "nats://me:"+password+"@127.0.0.1:1")},
		{name: "no host of that name", until: "NATS is unreachable",
			args: append(short, "--nats.url", "nats://me:"+password+"@no.such.host.invalid")},
		{name: "let in by password", until: "run gputap stream init", args: append(short, "--config", file)},
		{name: "let in by nkey", only: "gputap-leak", until: "run gputap stream init",
			args: append(short, "--nats.url", "nats://"+closed, "--nats.nkey_file", seeds["leak"])},
	}
	t.Run("programs", func(t *testing.T) { // before `gputap stream init` creates the streams
		for _, tt := range cases {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				for _, program := range programs() {
					connects := !strings.Contains(tt.until, "nats.url: ") && len(tt.args) > 0 &&
						tt.args[0] == "--log.level"
					if tt.only != "" && tt.only != program {
						continue
					}
					if program == "gputap-producer" && connects {
						continue // it would probe this machine; the connecting code is the same
					}
					out := says(t, tt.until, tt.env, filepath.Join(dir, program), tt.args...)
					if contains(out, secret) != "" {
						t.Errorf("%s prints %q in\n%s", program, contains(out, secret), out)
					}
				}
			})
		}
	})
	env := []string{"GPUTAP_NATS__URL=nats://me:" + password + "@127.0.0.1:1"}
	for until, args := range map[string][]string{
		"Create the JetStream streams": {"stream", "init", "--help"},
		"Replay a recorded run":        {"simulate", "--help"},
		"Check Linux, BTF":             {"doctor", "--help"},
		"connect: connection refu":     {"doctor"},
		"not a URL; use nats": {"doctor", "--nats.url", "nats://me:12345/" + password +
			"@" + open},
		"connect to NATS at nats://me:xxxxx@127.0.0.1:1: ": {"simulate", "--hosts", "1"},
		"NATS at nats://me:xxxxx@127.0.0.1:1": {"stream", "init", "--nats.url", "nats://me:" + password +
			"@127.0.0.1:1"},
		"no user with the credentials in nats.url": {"stream", "init", "--nats.url", "nats://" + token + "@" +
			open},
		"nats.url, server 1: not a URL": {"stream", "init", "--nats.url", "nats://me:" + password +
			"/x@" + open},
		"nats.nkey_file: the value is a seed": {"stream", "init", "--nats.url", "nats://" + open,
			"--nats.nkey_file", string(seed)},
		"url: nats://me:xxxxx@": {"config", "print", "leak", "--nats.url", "nats://me:" +
			password + "@" + open},
		"url: nats://me:xxxxx@127.0.0.1:1": {"config", "print", "gputap-producer"},
		"unknown program \"fold\"": {"config", "print", "fold", "--nats.url", "nats://me:" +
			password + "@" + open},
		"streams are ready": {"stream", "init", "--nats.url", "nats://me:" + password +
			"@" + open, "--max-bytes", "16777216"},
		"listen: 127.0.0.1:0":                                {"run", "--print-config", "--nats-listen", "127.0.0.1:0"},
		"other machines can reach 0.0.0.0:4222; set embedde": {"run", "--nats-listen", "0.0.0.0:4222"},
	} {
		if out := says(t, until, env, filepath.Join(dir, "gputap"), args...); contains(out, secret) != "" {
			t.Errorf("gputap %q prints %q in\n%s", args, contains(out, secret), out)
		}
	}
}

func contains(out string, secret []string) string {
	for _, s := range secret {
		if strings.Contains(out, s) {
			return s
		}
	}
	return ""
}

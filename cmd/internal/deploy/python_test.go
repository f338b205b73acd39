package deploy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/config"
	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// follower is a run of examples/follow.py, without this process's environment.
type follower struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bufio.Reader
	stdout strings.Builder
}

func follow(t *testing.T, env []string, args ...string) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	f := &follower{t: t, cmd: exec.CommandContext(ctx, python(t),
		append([]string{"-S", "../../../examples/follow.py"}, args...)...)}
	f.cmd.Env, f.cmd.Stdout = append(env, "PYTHONDONTWRITEBYTECODE=1"), &f.stdout
	pipe, err := f.cmd.StderrPipe()
	check(t, err)
	f.stderr = bufio.NewReader(pipe)
	check(t, f.cmd.Start())
	return f
}

// python returns the interpreter. One of the PATH may be a script of a version manager, which takes half a second.
func python(t *testing.T) (path string) {
	t.Helper()
	path, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		path, err = exec.LookPath("python3")
	}
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_PYTHON") == "1" {
			t.Fatal(err)
		}
		t.Skip("no python3")
	}
	return path
}

// following waits until the server has the subscription.
func (f *follower) following() *follower {
	f.t.Helper()
	if line, err := f.stderr.ReadString('\n'); line != "following\n" {
		rest, _ := io.ReadAll(f.stderr)
		f.t.Fatalf("follow.py printed %q %s, %v", line, rest, err)
	}
	return f
}

func (f *follower) end() (stdout, stderr string, err error) {
	f.t.Helper()
	rest, readErr := io.ReadAll(f.stderr)
	check(f.t, readErr)
	err = f.cmd.Wait()
	return f.stdout.String(), string(rest), err
}

// publishBatches publishes a batch of n allocations for each of these hosts of cluster "default".
func publishBatches(t *testing.T, js jetstream.JetStream, n int, hosts ...string) (events []string) {
	t.Helper()
	for _, name := range hosts {
		host := consumertest.Memory(t, name)
		host.Header.Cluster = "default"
		process := host.Process(7, 1, "python3")
		for i := range n {
			process.Alloc(7, uint64(0x1000*(i+1)), 1<<20, schema.KTime(100+i), 5)
			wall := time.Unix(0, int64(100+i)+host.Header.ClockOffset).UTC().Format("2006-01-02T15:04:05.000000000Z")
			events = append(events, fmt.Sprintf("%s default %s alloc cuMemAlloc_v2 pid=7 comm=python3", wall, name))
		}
		_, err := js.Publish(t.Context(), schema.Subject(0, "default", name, schema.KindMemory), host.Message())
		check(t, err)
	}
	return events
}

func holdLines(t *testing.T, stdout string, events []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != len(events) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(events), stdout)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, events[i]) || !strings.Contains(line, "bytes=1048576 duration_ns=5") {
			t.Errorf("line %d is %q, want %q", i, line, events[i])
		}
	}
}

// holdRecording expects one batch with events of one host, and nothing else.
func holdRecording(t *testing.T, path, host string, events int) {
	t.Helper()
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	r := schema.NewReader(schema.Recording(file))
	b, err := r.Read()
	if err != nil || b.Host != host || b.Events != events {
		t.Fatalf("it has %+v, %v", b, err)
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after it comes %v", err)
	}
}

// TestFollowReadsGputapRun: follow.py reads live and stored events of an embedded server with the credential that the
// server wrote, with and without TLS.
func TestFollowReadsGputapRun(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	cert, key := ours.issueServer()
	for name, c := range map[string]config.Embedded{
		"plain": {Listen: "127.0.0.1:0"}, "TLS": {Listen: "0.0.0.0:0", TLSCert: cert, TLSKey: key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bus, err := embedded.Start(t.TempDir(), c, quiet())
			check(t, err)
			defer bus.Stop()
			nc, js, err := bus.Connect("test")
			check(t, err)
			defer nc.Close()
			check(t, eventbus.EnsureStreams(t.Context(), js, eventbus.StreamOptions{MaxBytes: 64 << 20}))
			_, file := bus.Listening()
			credential, err := os.ReadFile(file)
			check(t, err)
			var args []string
			if name == "TLS" {
				args = []string{"--ca", ours.file}
			}
			live := follow(t, strings.Split(string(credential), "\n")[1:4],
				append(args, "--batches", "3", "--cluster", "default")...).following()
			events := publishBatches(t, js, 2, "gpu-1", "gpu-2")
			_, err = js.Publish(t.Context(), schema.Subject(0, "default", "gpu-3", schema.KindMemory),
				[]byte("\x81\xa1k"))
			check(t, err)
			stdout, stderr, err := live.end()
			if err != nil || !strings.Contains(stderr, "gpu-3.memory: no batch: ") {
				t.Errorf("ends with %v: %s", err, stderr)
			}
			holdLines(t, stdout, events)
			stored := follow(t, strings.Split(string(credential), "\n")[1:4],
				append(args, "--batches", "2", "--stream", schema.StreamName(0))...)
			stdout, stderr, err = stored.end()
			if err != nil {
				t.Errorf("ends with %v: %s", err, stderr)
			}
			holdLines(t, stdout, events)
			saved := filepath.Join(t.TempDir(), "saved")
			_, stderr, err = follow(t, strings.Split(string(credential), "\n")[1:4],
				append(args, "--batches", "1", "--stream", schema.StreamName(0), "--host", "gpu-2", "--save",
					saved)...).end()
			if err != nil {
				t.Errorf("ends with %v: %s", err, stderr)
			}
			holdRecording(t, saved, "gpu-2", 2)
			address, _ := bus.Listening()
			if _, stderr, err := follow(t, nil, append(args, "--server",
				strings.Replace(address, "[::]", "127.0.0.1", 1))...).end(); err == nil ||
				!strings.Contains(stderr, "Authorization Violation") {
				t.Errorf("without a credential it ends with %v: %s", err, stderr)
			}
		})
	}
}

// TestFollowTakesEachCredential: none, a token, a password in the URL. The stream has more messages than one pull asks
// for.
func TestFollowTakesEachCredential(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]server.Options{
		"@none": {}, "s3cr3t@": {Authorization: "s3cr3t"}, "me:p%40ss@": {Username: "me", Password: "p@ss"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			followStored(t, strings.TrimSuffix(name, "none"), &o)
		})
	}
}

// followStored reads 600 stored batches with a credential.
func followStored(t *testing.T, name string, o *server.Options) {
	t.Helper()
	o.Host, o.Port, o.JetStream, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", -1, true, t.TempDir(), true, true
	s := start(t, o)
	url := "nats://" + strings.TrimPrefix(name, "@") + s.Addr().String()
	nc, js, err := process("admin", quiet()).Connect(config.NATS{URL: url})
	check(t, err)
	defer nc.Close()
	check(t, eventbus.EnsureStreams(t.Context(), js, eventbus.StreamOptions{MaxBytes: 64 << 20}))
	hosts := make([]string, 600)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("h%d", i)
	}
	events := publishBatches(t, js, 1, hosts...)
	stdout, stderr, err := follow(t, nil, "--server", url, "--stream", schema.StreamName(0), "--batches", "600").end()
	if err != nil {
		t.Errorf("%s ends with %v: %s", name, err, stderr)
	}
	holdLines(t, stdout, events)
}

// TestFollowNeedsTheReaderRoleOnly: the reader role of deploy/nats is enough, and follow.py reports missing
// permissions. The user has a password here, because Python's standard library has no nkeys.
func TestFollowNeedsTheReaderRoleOnly(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	options := load(t, files+"nats.conf", t.TempDir(), 1<<30)
	for _, u := range options.Nkeys {
		if u.Nkey == getenv(t, "GPUTAP_NKEY_READER_CLUSTER") {
			options.Users = append(options.Users, &server.User{
				Username: "reader-default", Password: "p", Permissions: u.Permissions, Account: u.Account,
			})
		}
	}
	s := start(t, options)
	_, admin := join(t, "admin", config.NATS{URL: s.ClientURL(), NKeyFile: seeds["admin"]}, quiet())
	setUp(t, admin)
	hosts := make([]string, 300) // more than one pull asks for
	for i := range hosts {
		hosts[i] = fmt.Sprintf("gpu-%d", i)
	}
	events := publishBatches(t, admin, 1, hosts...)
	env := []string{"NATS_URL=" + s.ClientURL(), "NATS_USER=reader-default", "NATS_PASSWORD=p"}
	as := []string{"--name", "reader-default", "--stream", schema.StreamName(0), "--batches", "300"}
	stdout, stderr, err := follow(t, env, append(as, "--cluster", "default")...).end()
	if err != nil {
		t.Errorf("ends with %v: %s", err, stderr)
	}
	holdLines(t, stdout, events)
	for _, args := range [][]string{append(as, "--cluster", "other"), {"--cluster", "other"}, {}} {
		if _, stderr, err := follow(t, env, args...).end(); err == nil || !strings.Contains(stderr,
			"Permissions Violation") {
			t.Errorf("%q ends with %v: %s", args, err, stderr)
		}
	}
}

// TestFollowRejectsInvalidArguments checks that a wrong server or name is reported in one line before a connection is
// made.
func TestFollowRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"Port out of range": {"--server", "nats://127.0.0.1:99999"}, "argument --host: 'a b'": {"--host", "a b"},
		"argument --cluster: ''": {"--cluster", ""},
		"argument --name: 'a.b'": {"--name", "a.b"},
	} {
		stdout, stderr, err := follow(t, nil, args...).end()
		if err == nil || !strings.Contains(stderr, want) || strings.Contains(stderr, "Traceback") {
			t.Errorf("%v ends with %v: %s%s", args, err, stdout, stderr)
		}
	}
}

// TestFollowNeedsCertificate checks follow.py on a server where the certificate is the credential.
func TestFollowNeedsCertificate(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	url := serve(t, files+"certs.conf").ClientURL()
	_, admin := join(t, "admin", config.NATS{URL: url, TLS: ours.client("admin.gputap")}, quiet())
	setUp(t, admin)
	events := publishBatches(t, admin, 1, "gpu-1")
	args := []string{"--server", url, "--ca", ours.file, "--cluster", "default", "--name", "reader-default",
		"--stream", schema.StreamName(0), "--batches", "1"}
	reader := ours.client("reader-default.gputap")
	stdout, stderr, err := follow(t, nil, append(args, "--cert", reader.CertFile, "--key", reader.KeyFile)...).end()
	if err != nil {
		t.Fatalf("ends with %v: %s", err, stderr)
	}
	holdLines(t, stdout, events)
	if stdout, _, err := follow(t, nil, args...).end(); err == nil {
		t.Errorf("without a certificate it is let in: %s", stdout)
	}
}

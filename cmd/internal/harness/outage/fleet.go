package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

const (
	clusterName = "outage"
	hostName    = "guest"
	healthy     = time.Minute // for a server or a consumer to be there
)

// fleet is what is outside of the guest: nats-server, gputap-leak, and what asks them.
type fleet struct {
	dir   string
	began time.Time
	port  int
	nats  *exec.Cmd
	leak  *exec.Cmd
	page  string // gputap-leak's metrics
	nc    *nats.Conn
	js    jetstream.JetStream
}

func (f *fleet) say(format string, args ...any) {
	fmt.Printf("%7.1fs  "+format+"\n", append([]any{time.Since(f.began).Seconds()}, args...)...)
}

func (f *fleet) program(name string) string { return filepath.Join(f.dir, "bin", name) }

// newFleet builds the programs and starts what is outside.
func newFleet(ctx context.Context, dir string) (*fleet, error) {
	f := &fleet{dir: dir, began: time.Now()}
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+"/bin/", "github.com/nats-io/nats-server/v2", "./cmd/gputap", "./cmd/gputap-leak", "./cmd/gputap-producer")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return f, fmt.Errorf("build: %w", err)
	}
	ports, err := cluster.FreePorts(2)
	if err != nil {
		return f, err
	}
	f.port, f.page = ports[0], fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if err := f.startNATS(); err != nil {
		return f, err
	}
	if err := f.connect(ctx); err != nil {
		return f, err
	}
	out, err := exec.CommandContext(ctx, f.program("gputap"), "stream", "init", "--nats.url", f.url(), "--shards", "1", "--max-bytes", "4GiB").CombinedOutput()
	if err != nil {
		return f, fmt.Errorf("stream init: %w: %s", err, out)
	}
	return f, f.startLeak(ctx)
}

func (f *fleet) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", f.port) }

// startProcess starts a program whose output is appended to a file, and which ends with this one.
func (f *fleet) startProcess(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(f.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(f.program(name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, nil
}

// startNATS starts the server on its port and store.
func (f *fleet) startNATS() error {
	conf := filepath.Join(f.dir, "nats.conf")
	text := fmt.Sprintf("server_name: outage\nlisten: \"127.0.0.1:%d\"\njetstream { store_dir: %q, max_file_store: 8GB }\n", f.port, filepath.Join(f.dir, "store"))
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return err
	}
	var err error
	f.nats, err = f.startProcess("nats-server", "-c", conf)
	return err
}

// killNATS gives it no time for anything.
func (f *fleet) killNATS() {
	_ = f.nats.Process.Kill()
	_ = f.nats.Wait()
}

func (f *fleet) connect(ctx context.Context) error {
	return until(ctx, healthy, func() (err error) {
		if f.nc == nil {
			if f.nc, err = nats.Connect(f.url(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0)); err != nil {
				return err
			}
			if f.js, err = jetstream.New(f.nc); err != nil {
				return err
			}
		}
		_, err = f.js.AccountInfo(ctx)
		return err
	})
}

func (f *fleet) startLeak(ctx context.Context) (err error) {
	f.leak, err = f.startProcess("gputap-leak", "--nats.url", f.url(), "--metrics.addr", strings.TrimPrefix(f.page, "http://"), "--display-interval", "0",
		"--log.format", "text", "--consumer.checkpoint", "5s")
	if err != nil {
		return err
	}
	return until(ctx, healthy, func() error {
		_, err := f.get("/readyz")
		return err
	})
}

func (f *fleet) get(path string) (string, error) {
	response, err := http.Get(f.page + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// sum adds up the values of one of gputap-leak's metrics over its labels. One that is not there is an error.
func sum(page, name string) (total float64, err error) {
	found := false
	for l := range strings.Lines(page) {
		if at := strings.LastIndexByte(l, ' '); at > 0 && (strings.HasPrefix(l, name+"{") || strings.HasPrefix(l, name+" ")) {
			v, err := strconv.ParseFloat(strings.TrimSpace(l[at:]), 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", name, err)
			}
			total, found = total+v, true
		}
	}
	if !found {
		return 0, fmt.Errorf("no %s in gputap-leak's metrics", name)
	}
	return total, nil
}

func (f *fleet) close() {
	if f.nc != nil {
		f.nc.Close()
	}
	for _, cmd := range []*exec.Cmd{f.leak, f.nats} {
		if cmd != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// until tries several times a second.
func until(ctx context.Context, within time.Duration, try func() error) error {
	for deadline := time.Now().Add(within); ; {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

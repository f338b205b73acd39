package app

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// asChild makes the test binary run a command through Main.
const asChild = "APP_TEST_CHILD"

func TestMain(m *testing.M) {
	mode := os.Getenv(asChild)
	if mode == "" {
		os.Exit(m.Run())
	}
	Main("child", func(ctx context.Context, p *Process) error {
		if mode == "secret" {
			err := Usage(errors.New(`unknown command "nats://me:S3CRET@bus"`))
			p.Log.Info("tried nats://me:S3CRET@bus", "url", "nats://S3CRET@bus", "err", err)
			return err
		}
		if mode != "quiet" {
			p.Drains()
		}
		fmt.Fprintln(p.Stdout, "ready")
		<-ctx.Done()
		fmt.Fprintln(p.Stdout, "draining")
		switch mode {
		case "stuck":
			select {}
		case "canceled":
			return fmt.Errorf("export run.gputap: %w", ctx.Err())
		case "loss":
			return Incomplete(errors.New("events were lost"))
		}
		return nil
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode    string
		signals []syscall.Signal
		want    int
	}{
		{"drains", []syscall.Signal{syscall.SIGTERM}, 0},
		{"quiet", []syscall.Signal{syscall.SIGTERM}, 0},
		{"quiet", []syscall.Signal{syscall.SIGINT}, 0},
		{"loss", []syscall.Signal{syscall.SIGINT}, 4},
		{"canceled", []syscall.Signal{syscall.SIGINT}, 130},
		{"canceled", []syscall.Signal{syscall.SIGTERM}, 143},
		{"stuck", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130},
		{"stuck", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, 143},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.mode, tt.signals), func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), asChild+"="+tt.mode)
			var logs bytes.Buffer
			child.Stderr = &logs
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for _, s := range tt.signals { // one signal after each line: "ready", then "draining"
				if !lines.Scan() {
					t.Fatal("the child printed nothing")
				}
				if err := child.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			for lines.Scan() {
			}
			err = child.Wait()
			var exit *exec.ExitError
			got := 0
			if errors.As(err, &exit) {
				got = exit.ExitCode()
			}
			if got != tt.want {
				t.Errorf("ends with %d (%v), want %d", got, err, tt.want)
			}
			quiet := tt.mode == "quiet"
			if quiet && logs.Len() > 0 || !quiet && !strings.Contains(logs.String(), "draining") {
				t.Errorf("%s logs %q", tt.mode, logs.String())
			}
		})
	}
}

// TestLogAndErrorHideSecrets checks the log and the error at exit.
func TestLogAndErrorHideSecrets(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), asChild+"=secret")
	out, err := child.CombinedOutput()
	if child.ProcessState.ExitCode() != 2 || bytes.Contains(out, []byte("S3CRET")) ||
		bytes.Count(out, []byte("nats://me:xxxxx@bus")) != 3 {
		t.Errorf("ends with %v and prints\n%s", err, out)
	}
}

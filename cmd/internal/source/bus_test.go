package source

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

func TestNoFileAndNoRange(t *testing.T) {
	connectTime = 50 * time.Millisecond
	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{2, "nothing to read: name a recording, or set --since", nil},
		{2, "it is not before --until 2m", []string{"--since", "1m", "--until", "2m"}},
		{2, "it is in the future", []string{"--since", "2999-01-01T00:00:00Z"}},
		{2, "nats.url", []string{"--since", "1m", "--nats.url", "http://bus"}},
		{5, "connect to NATS at nats://127.0.0.1:1", []string{"--since", "1m", "--nats.url", "nats://127.0.0.1:1"}},
	} {
		p := &app.Process{Name: "gputap", Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
		r, cmd := &Range{}, &cobra.Command{}
		r.AddFlags(cmd)
		err := cmd.ParseFlags(tt.args)
		if err == nil {
			err = r.Parse()
		}
		if err == nil {
			_, err = r.Open(t.Context(), p, nil)
		}
		if err == nil || app.ExitCode(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v (status %d), want %q (%d)", tt.args, err, app.ExitCode(err), tt.want, tt.code)
		}
	}
}

package deploy

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestRecorders: the role recorder records with checkpoints. A role that may not read them rebuilds the state from the
// stream, and says so.
func TestRecorders(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	url := serve(t, files+"nats.conf").ClientURL()
	_, admin := join(t, "admin", config.NATS{URL: url, NKeyFile: seeds["admin"]}, quiet())
	setUp(t, admin)
	h := consumertest.Memory(t, "gpu-1")
	for i := range 3 {
		h.Process(7, 1, "train").Alloc(7, uint64(i+1)<<20, 1<<20, schema.KTime(1000*(i+1)), 1)
		_, err := admin.Publish(t.Context(), schema.Subject(0, "test", "gpu-1", schema.KindMemory), h.Message())
		check(t, err)
	}
	for user, warns := range map[string]bool{"recorder": false, "leak": false, "launch": true} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			_, js := join(t, user, config.NATS{URL: url, NKeyFile: seeds[user]}, quiet())
			var log bytes.Buffer
			o := record.Options{
				JetStream: js, Path: filepath.Join(t.TempDir(), "run.gtr"),
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := record.New(o)
			go func() {
				<-r.Ready()
				cancel()
			}()
			check(t, r.Run(ctx))
			found, err := record.Inspect(o.Path)
			check(t, err)
			if found.State.Hosts != 1 || found.Shards[0].State != "complete" {
				t.Errorf("state %+v of %+v", found.State, found.Shards)
			}
			if warned := strings.Contains(log.String(), "rebuilding its state from the stream"); warned != warns {
				t.Errorf("warned: %t, want %t:\n%s", warned, warns, &log)
			}
		})
	}
}

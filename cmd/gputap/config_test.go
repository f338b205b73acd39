package main

import (
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// TestMisplacedURLIsHidden types a URL where a command is expected. The error does not repeat its password.
func TestMisplacedURLIsHidden(t *testing.T) {
	t.Parallel()
	const url = "nats://me:S3CRET@127.0.0.1:1"
	for _, args := range [][]string{
		{url}, {"stream", url}, {"stream", "init", url}, {"config", url}, {"config", "print", url},
		{"config", "print", "leak", url},
		{"config", "print", "leak", "--log.level", url}, {"simulate", "-nats.url=" + url}, {"simulate", "--hosts", url},
		{"doctor", url},
	} {
		_, err := typed(t, args...)
		if app.ExitCode(err) != 2 || strings.Contains(config.Redact(err.Error()), "S3CRET") {
			t.Errorf("%q ends with %v", args, err)
		}
	}
}

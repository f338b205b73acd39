package producer

import (
	"testing"

	"github.com/gputap/gputap/config"
)

// TestInboxPrefix: the permissions of a host name it.
func TestInboxPrefix(t *testing.T) {
	got, err := InboxPrefix(config.Producer{Cluster: "c 1", Host: "gpu-1.example.com"})
	if err != nil || got != "_INBOX.c_1.gpu-1_example_com" {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err = InboxPrefix(config.Producer{Cluster: "c"}); err != nil || got == "_INBOX.c." || got == "_INBOX.c._" {
		t.Errorf("without a name in the configuration: %s, %v", got, err)
	}
}

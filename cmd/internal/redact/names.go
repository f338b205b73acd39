package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/gputap/gputap/schema"
)

// Names gives pseudonyms. Any number of goroutines may use it.
type Names struct {
	key []byte

	mu    sync.Mutex
	known map[name]string
}

type name struct {
	what schema.Private
	text string
}

const (
	keyBytes  = 32
	hashBytes = 6       // a million names have two equal pseudonyms with a probability of 0.2 %
	mostNames = 1 << 20 // remembered
)

// NewNames returns Names with a new random key.
func NewNames() *Names {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	return &Names{key: key, known: map[name]string{}}
}

// Of returns the pseudonym of a name. That of "" is "".
func (n *Names) Of(what schema.Private, text string) string {
	switch {
	case text == "":
		return ""
	case what == schema.PrivateText:
		return "redacted"
	}
	// A label of a metric is valid UTF-8, and has the pseudonym of the name that it shows.
	id := name{what, strings.ToValidUTF8(text, "\uFFFD")}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.known[id]; known != "" {
		return known
	}
	if len(n.known) >= mostNames {
		clear(n.known)
	}
	hash := hmac.New(sha256.New, n.key)
	hash.Write([]byte{byte(what)})
	hash.Write([]byte(id.text))
	pseudonym := what.String() + "-" + hex.EncodeToString(hash.Sum(nil)[:hashBytes])
	n.known[id] = pseudonym
	return pseudonym
}

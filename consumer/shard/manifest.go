package shard

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// manifestForm is the only form of a manifest that exists. A later program may write a higher one: see rebuildAfter.
const manifestForm = 1

// rebuildAfter is in lease TTLs. During an upgrade old and new instances run side by side, and a new one may save a
// state in a form that an old one cannot read. The old one releases the shard and publishes that it refuses it, so
// that the shard is placed on an instance that can read it. Only if none takes the shard for this time is the state
// rebuilt from the stream, which may lack what retention has removed.
const rebuildAfter = 3

func isNewer(err error) bool { return errors.Is(err, snapshot.ErrVersion) }

// manifest is a checkpoint: it names the parts of a shard's state, up to which message of the stream the state goes,
// and who may write the next manifest. The newest manifest counts; each replaces exactly the one that its writer
// knows.
type manifest struct {
	Form   int    `json:"form"`
	Owner  string `json:"owner"`
	Epoch  uint64 `json:"epoch"` // grows with each claim
	Commit uint64 `json:"commit"`
	Parts  string `json:"parts,omitempty"` // prefix of the parts' subjects
	Sums   []part `json:"sums,omitempty"`
	bus.Position
	Written time.Time `json:"written"`

	revision uint64 // sequence of the manifest's own message; 0: not stored
}

type part struct {
	Bytes int    `json:"bytes"`
	CRC   uint32 `json:"crc32c"`
}

// saved reports whether the manifest names a state, which may be that of an empty shard.
func (m *manifest) saved() bool { return len(m.Sums) > 0 }

func (m *manifest) bytes() (n int) {
	for _, p := range m.Sums {
		n += p.Bytes
	}
	return n
}

// valid reports whether parts of these names and lengths can exist.
func (m *manifest) valid() bool {
	epoch, attempt, _ := strings.Cut(m.Parts, ".")
	return !m.saved() || epoch == schema.Token(epoch) && attempt == schema.Token(attempt) &&
		!slices.ContainsFunc(m.Sums, func(p part) bool { return p.Bytes < 1 || p.Bytes > partBytes })
}

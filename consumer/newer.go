package consumer

import (
	"errors"

	"github.com/gputap/gputap/consumer/snapshot"
)

// errNewer: a state that a newer program saved. An instance that meets one lets go of the shard and tells the others, who place
// it where it can be read: during an upgrade old instances and new ones run side by side, and a rebuilt state would lack what the
// stream has let go of. Only when no instance that can read it comes within waitForNewer leases is it rebuilt.
var errNewer = errors.New("state was saved by a newer program")

const waitForNewer = 3

func isNewer(err error) bool {
	return errors.Is(err, errNewer) || errors.Is(err, snapshot.ErrVersion)
}

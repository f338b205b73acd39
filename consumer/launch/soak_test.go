//go:build soak

package launch

import "testing"

func TestSnapshotAtLength(t *testing.T) { suite.Soak(t) }

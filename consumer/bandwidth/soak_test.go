//go:build soak

package bandwidth

import "testing"

func TestSnapshotAtLength(t *testing.T) { suite.Soak(t) }

//go:build soak

package coverage

import "testing"

func TestSnapshotAtLength(t *testing.T) { suite.Soak(t) }

//go:build soak

package anomaly

import "testing"

func TestSnapshotAtLength(t *testing.T) { suite.Soak(t) }

//go:build bpf && soak

package producer

import "testing"

func TestTenThousandKilledInsideCalls(t *testing.T) { killInsideCalls(t, 10_000) }

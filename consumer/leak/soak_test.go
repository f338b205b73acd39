//go:build soak

package leak

import "testing"

func TestManyRandomAllocationsMatchModel(t *testing.T) {
	t.Parallel()
	randomAllocations(t, 40)
}

func TestManyRandomCallsMatchModel(t *testing.T) {
	t.Parallel()
	randomCalls(t, 100)
}

func TestBucketOrderDoesNotMatterAtLength(t *testing.T) {
	t.Parallel()
	bucketOrders(t, 10, 200)
}

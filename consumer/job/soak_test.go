//go:build soak

package job

import (
	"testing"
	"time"
)

func TestManyOrdinaryJobsRaiseNothing(t *testing.T) {
	t.Parallel()
	quiet(t, 1500, 16, 100*time.Millisecond)
}

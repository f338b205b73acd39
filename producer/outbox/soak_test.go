//go:build soak

package outbox

import "testing"

func TestModelAtLength(t *testing.T) {
	t.Parallel()
	randomModels(t, 40)
}

func TestSumsAtLength(t *testing.T) {
	t.Parallel()
	randomSums(t, 100)
}

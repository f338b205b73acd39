//go:build soak

package snapshot_test

import "testing"

func TestFoldsAtLength(t *testing.T) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, effort{traffics: 8, hostile: 100, places: 9, crowded: 4, step: 1, flips: 300})
		})
	}
}

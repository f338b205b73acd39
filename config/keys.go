package config

import (
	"fmt"
	"slices"

	"github.com/knadh/koanf/v2"
)

// checkKeys returns an error for the first key that no program has. It deletes keys of other programs, so that one file
// and one environment may serve all of them.
func checkKeys(k *koanf.Koanf, own []string) error {
	all := slices.Clone(own)
	for _, root := range commands() {
		_, keys := flagsOf(root)
		all = append(all, keys...)
	}
	for _, key := range k.Keys() {
		switch {
		case slices.Contains(own, key):
		case slices.Contains(all, key):
			k.Delete(key)
		default:
			return fmt.Errorf("unknown key %s (variable %s): %s", key, variable(key), suggestion(key, all))
		}
	}
	return nil
}

// suggestion names the nearest key if it is near enough to be meant.
func suggestion(key string, known []string) string {
	nearest := slices.MinFunc(known, func(a, b string) int { return distance(key, a) - distance(key, b) })
	if distance(key, nearest) > 1+len(key)/4 {
		return "--help lists the keys"
	}
	return fmt.Sprintf("did you mean %s?", nearest)
}

// distance returns the number of edits between two keys.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

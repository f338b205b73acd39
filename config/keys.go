package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/v2"
)

// checkKeys returns an error for the first key that no program has. Keys of other programs are correct, so that one
// file and one environment may serve all of them.
func checkKeys(k *koanf.Koanf) error {
	known := slices.Sorted(maps.Values(known().keys))
	for _, key := range k.Keys() {
		if !slices.Contains(known, key) {
			return fmt.Errorf("unknown key %s (variable %s): %s", key, variable(key), suggestion(key, known))
		}
	}
	return nil
}

// suggestion names the nearest key if it is close.
func suggestion(key string, known []string) string {
	if nearest := Nearest(key, known); nearest != "" {
		return fmt.Sprintf("did you mean %s?", nearest)
	}
	return "--help lists the keys"
}

// Nearest returns the known word that differs from word by a typing mistake, or "". One edit is allowed, or two if the
// last part of a dotted word has eight letters or more.
func Nearest(word string, known []string) string {
	last := word[strings.LastIndexByte(word, '.')+1:]
	allowed := 1
	if len(last) >= 8 {
		allowed = 2
	}
	nearest := ""
	for _, k := range known {
		if d := edits(word, k); d <= allowed {
			nearest, allowed = k, d-1
		}
	}
	return nearest
}

// edits returns the number of letters to insert, delete, replace or swap with their neighbour to get b from a.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := range len(a) {
		for j := range len(b) {
			replace := rows[i][j]
			if a[i] != b[j] {
				replace++
			}
			best := min(replace, rows[i][j+1]+1, rows[i+1][j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				best = min(best, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = best
		}
	}
	return rows[len(a)][len(b)]
}

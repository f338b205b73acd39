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
	for _, key := range k.Keys() {
		if err := CheckKey(key); err != nil {
			return err
		}
	}
	return nil
}

// CheckKey returns an error if no program has the key. It names the nearest one.
func CheckKey(key string) error {
	_, byName := known()
	keys := slices.Sorted(maps.Values(byName))
	if slices.Contains(keys, key) {
		return nil
	}
	hint := "--help lists the keys"
	if nearest := Nearest(key, keys); nearest != "" {
		hint = "did you mean " + nearest + "?"
	}
	return fmt.Errorf("unknown key %s: %s", key, hint)
}

// Nearest returns the known word that differs from word by a typing mistake, or "". One edit is allowed, or two if the
// last part of a dotted word has eight letters or more.
func Nearest(word string, known []string) string {
	allowed := 1
	if last := word[strings.LastIndexByte(word, '.')+1:]; len(last) >= 8 {
		allowed = 2
	}
	for n := range allowed + 1 {
		if i := slices.IndexFunc(known, func(k string) bool { return within(n, word, k) }); i >= 0 {
			return known[i]
		}
	}
	return ""
}

// within reports whether n letters or fewer must be inserted, deleted, replaced or swapped with their neighbour to get
// b from a.
func within(n int, a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	if n == 0 || a == "" || b == "" {
		return len(a)+len(b) <= n
	}
	swapped := len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0]
	return within(n-1, a[1:], b[1:]) || within(n-1, a[1:], b) || within(n-1, a, b[1:]) ||
		swapped && within(n-1, a[2:], b[2:])
}

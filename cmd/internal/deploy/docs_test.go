package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/config"
)

// TestSecurityPageNamesTheFiles checks that the page names every file of deploy/nats and no other.
func TestSecurityPageNamesTheFiles(t *testing.T) {
	data, err := os.ReadFile("../../../docs/security.md")
	check(t, err)
	var named, have []string
	for _, m := range regexp.MustCompile("`((?:jwt/)?[a-z-]+\\.(?:conf|json))`").FindAllStringSubmatch(string(data), -1) {
		named = append(named, m[1])
	}
	for _, pattern := range []string{"*.conf", "jwt/*"} {
		paths, err := filepath.Glob(files + pattern)
		check(t, err)
		for _, path := range paths {
			have = append(have, strings.TrimPrefix(filepath.ToSlash(path), files))
		}
	}
	slices.Sort(named)
	slices.Sort(have)
	if named = slices.Compact(named); !slices.Equal(named, have) {
		t.Errorf("docs/security.md names %q, deploy/nats has %q", named, have)
	}
}

// TestSecurityPageKeys checks that every key that the page names can be set.
func TestSecurityPageKeys(t *testing.T) {
	data, err := os.ReadFile("../../../docs/security.md")
	check(t, err)
	var printed strings.Builder
	check(t, config.Print(&printed, config.DefaultRunCommand()))
	check(t, config.Print(&printed, config.DefaultLeakCommand()))
	keys := regexp.MustCompile("`(?:nats|embedded)\\.([a-z_.]+)`").FindAllStringSubmatch(string(data), -1)
	if len(keys) < 8 {
		t.Fatalf("the page names %d keys", len(keys))
	}
	for _, m := range keys {
		last := m[1][strings.LastIndexByte(m[1], '.')+1:]
		if last != "conf" && !strings.Contains(printed.String(), " "+last+": ") {
			t.Errorf("no key %s", m[0])
		}
	}
}

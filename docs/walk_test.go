package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWalkNamesFunctions checks that each function of architecture.md's "One event" is defined in the file beside it.
func TestWalkNamesFunctions(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| \\w+ \\| `([^`]+)` \\| `([^`]+)` \\|")
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(page), "## One event")
	steps := row.FindAllStringSubmatch(walk, -1)
	if len(steps) < 7 {
		t.Fatalf("found %d steps, want at least 7", len(steps))
	}
	for _, step := range steps {
		source, err := os.ReadFile(filepath.Join(root, step[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		defined := regexp.MustCompile(`(?m)^(func|static).*\b` + step[2] + `\(`)
		if !defined.Match(source) {
			t.Errorf("%s does not define %s", step[1], step[2])
		}
	}
}

package docs

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var freeze = flag.Bool("freeze", false, "add new golden files of forms to the list of frozen ones")

// forms are the golden files of the forms that programs of different versions exchange: batches, states, recordings.
var forms = []string{
	"schema/testdata/*.golden", "consumer/snapshot/testdata/*.golden", "schema/recording/testdata/*.gtrec",
}

// TestFrozenForms compares the golden files of forms with those of the release. A change of a form adds a file; it
// changes none. The tests beside the files read every one of them.
func TestFrozenForms(t *testing.T) {
	t.Parallel()
	const list = "testdata/frozen.txt" // lines of checksum and path, as sha256sum prints them
	data, err := os.ReadFile(list)
	if err != nil && !*freeze {
		t.Fatal(err)
	}
	frozen, now := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(data)) {
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		frozen[path] = sum
	}
	for _, pattern := range forms {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			contents, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(root, path) // path begins with root
			now[name] = fmt.Sprintf("%x", sha256.Sum256(contents))
		}
	}
	for path, sum := range frozen {
		if now[path] != sum {
			t.Errorf("%s differs from the released form: give the new form a number and a file of its own", path)
		}
	}
	var lines []string
	for path, sum := range now {
		if frozen[path] == "" && !*freeze {
			t.Errorf("%s is not frozen: run go test ./docs -run Frozen -freeze before the release", path)
		}
		lines = append(lines, sum+"  "+path+"\n")
	}
	if *freeze && !t.Failed() {
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
		if err := os.WriteFile(list, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

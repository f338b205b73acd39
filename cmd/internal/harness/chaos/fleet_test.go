package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestRevisionMustHaveTheSameForms(t *testing.T) {
	const golden = "schema/testdata/memory_v1.golden"
	for _, row := range []struct {
		name   string
		change func(tree string) error
		same   bool
	}{
		{"equal", func(string) error { return nil }, true},
		{"other code", func(tree string) error { return os.WriteFile(filepath.Join(tree, "a.go"), nil, 0o644) }, true},
		{"a form was added since", func(tree string) error {
			return os.WriteFile(filepath.Join(tree, "schema/testdata/memory_v2.golden"), []byte("wire"), 0o644)
		}, true},
		{"another form", func(tree string) error {
			return os.WriteFile(filepath.Join(tree, golden), []byte("new"), 0o644)
		}, false},
		{"no common form", func(tree string) error {
			return os.Rename(filepath.Join(tree, golden), filepath.Join(tree, "memory.golden"))
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			tree := t.TempDir()
			git := func(args ...string) {
				t.Helper()
				cmd := exec.Command("git", args...)
				cmd.Dir = tree
				cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost",
					"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %s: %v: %s", args, err, out)
				}
			}
			if err := os.MkdirAll(filepath.Join(tree, filepath.Dir(golden)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(tree, golden), []byte("wire"), 0o644); err != nil {
				t.Fatal(err)
			}
			git("init", "-q")
			git("add", "-A")
			git("commit", "-q", "-m", "forms")
			if err := row.change(tree); err != nil {
				t.Fatal(err)
			}
			git("add", "-A")
			if err := sameForms(t.Context(), tree, "HEAD"); (err == nil) != row.same {
				t.Error(err)
			}
		})
	}
}

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/cmd/internal/fold"
)

func TestRevisionMustHaveTheSameForms(t *testing.T) {
	write := func(tree, path, text string) {
		t.Helper()
		path = filepath.Join(tree, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := func() string {
		dir := t.TempDir()
		write(dir, "schema/testdata/memory_v1.golden", "wire")
		for _, name := range fold.Names() {
			write(dir, "consumer/"+name+"/testdata/snapshot_v1.golden", "state")
		}
		return dir
	}
	for _, row := range []struct {
		name   string
		change func(ours, theirs string)
		same   bool
	}{
		{"equal", func(string, string) {}, true},
		{"a form was added since", func(ours, _ string) { write(ours, "schema/testdata/memory_v2.golden", "wire") },
			true},
		{"another wire", func(_, theirs string) { write(theirs, "schema/testdata/memory_v1.golden", "old") }, false},
		{"another state", func(_, theirs string) { write(theirs, "consumer/leak/testdata/snapshot_v1.golden", "old") },
			false},
		{"no common form", func(_, theirs string) {
			if err := os.RemoveAll(filepath.Join(theirs, "consumer/launch")); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		ours, theirs := tree(), tree()
		row.change(ours, theirs)
		if err := sameForms(ours, theirs); (err == nil) != row.same {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

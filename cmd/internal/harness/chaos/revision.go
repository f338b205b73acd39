package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// buildPrograms builds the programs of this tree, and of the revision that -from names.
func (f *fleet) buildPrograms(ctx context.Context) error {
	if err := buildTree(ctx, ".", f.Bin); err != nil || f.from == "" {
		return err
	}
	tree := f.Path("from")
	out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, f.from).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git worktree add %s: %w: %s", f.from, err, out)
	}
	defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() }()
	if err := sameForms(".", tree); err != nil {
		return fmt.Errorf("-from %s: %w", f.from, err)
	}
	return buildTree(ctx, tree, f.Path("old"))
}

func buildTree(ctx context.Context, tree, to string) error {
	programs := []string{"github.com/nats-io/nats-server/v2", "./cmd/gputap"}
	for _, name := range fold.Names() {
		programs = append(programs, "./cmd/gputap-"+name)
	}
	return cluster.Build(ctx, tree, to, programs...)
}

// sameForms returns an error unless another source tree has the wire form and the snapshot forms of this one. The
// golden files of a form never change, so those that both trees have must be equal, and there must be some of each
// form.
func sameForms(ours, theirs string) error {
	folders := []string{"schema/testdata"}
	for _, name := range fold.Names() {
		folders = append(folders, filepath.Join("consumer", name, "testdata"))
	}
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(ours, folder, "*.golden"))
		if err != nil {
			return err
		}
		shared := 0
		for _, path := range paths {
			own, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			other, err := os.ReadFile(filepath.Join(theirs, folder, filepath.Base(path)))
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				return err
			case !bytes.Equal(own, other):
				return fmt.Errorf("its %s/%s differs from this tree's: it has other forms, so its programs cannot run "+
					"beside these; choose a later revision", folder, filepath.Base(path))
			}
			shared++
		}
		if shared == 0 {
			return fmt.Errorf("it has no golden file of this tree's %s: it has other forms; choose a later revision",
				folder)
		}
	}
	return nil
}

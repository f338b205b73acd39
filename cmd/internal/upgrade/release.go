package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/schema"
)

const features = "memory,launch,copy" // all that the oldest producer has

// release is gputap of one commit.
type release struct {
	name    string
	dir     string          // of its programs
	watched map[string]bool // symbols whose calls are events of its producer
}

type releases struct{ old, middle, today *release }

func (r *release) program(name string) string { return filepath.Join(r.dir, name) }

// watchedToday are the symbols whose calls are events of the features.
func watchedToday() map[string]bool {
	watched := map[string]bool{}
	for i := range schema.Calls {
		c := &schema.Calls[i]
		if slices.Contains(strings.Split(features, ","), c.Kind.String()) && c.Shape != schema.ShapeNone {
			watched[c.Symbol] = true
		}
	}
	return watched
}

func buildReleases(ctx context.Context, dir string, o options) (r releases, err error) {
	r.today = &release{name: "today's", dir: filepath.Join(dir, "today"), watched: watchedToday()}
	if err := cluster.Build(ctx, ".", r.today.dir, append(programsOf(consumers), "github.com/nats-io/nats-server/v2")...); err != nil {
		return r, err
	}
	if r.old, err = buildCommit(ctx, dir, o.from, oldConsumers); err != nil {
		return r, err
	}
	r.middle, err = buildCommit(ctx, dir, o.through, consumers)
	return r, err
}

func programsOf(folds []string) []string {
	programs := []string{"./cmd/gputap", "./cmd/gputap-producer"}
	for _, fold := range folds {
		programs = append(programs, "./cmd/gputap-"+fold)
	}
	return programs
}

// buildCommit builds an older one. What its producer watches is in the table that its tests hold it to.
func buildCommit(ctx context.Context, dir, commit string, folds []string) (*release, error) {
	tree := filepath.Join(dir, "tree-"+commit)
	if out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, commit).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("git worktree add %s: %w: %s", commit, err, out)
	}
	defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() }()
	r := &release{name: commit, dir: filepath.Join(dir, commit), watched: map[string]bool{}}
	if err := cluster.Build(ctx, tree, r.dir, programsOf(folds)...); err != nil {
		return nil, err
	}
	table, err := os.ReadFile(filepath.Join(tree, "schema", "testdata", "calls.txt"))
	if err != nil {
		return nil, err
	}
	travels, today := map[string]bool{}, watchedToday()
	for op := schema.OpUnknown + 1; op < schema.OpName; op++ {
		travels[op.String()] = true
	}
	for line := range strings.Lines(string(table)) { // id, symbol, op, shape
		if fields := strings.Fields(line); len(fields) > 2 && today[fields[1]] && travels[fields[2]] {
			r.watched[fields[1]] = true
		}
	}
	if len(r.watched) == 0 {
		return nil, fmt.Errorf("%s: its table of calls has none of today's", commit)
	}
	return r, nil
}

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/pipeline"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

func pages(t *testing.T) map[string]string {
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range append(paths, "../../README.md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(data)
	}
	return all
}

// TestDocsNameWhatExists: every make target, subcommand and linked file of the docs is there.
func TestDocsNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile("(?m)(?:^|sudo |`)make ([a-z][a-z-]*)")
	command := regexp.MustCompile("(?m)(?:^|[` /])gputap ([a-z]+)")
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	root := subcommands(t)
	for name, text := range pages(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: no make target %s", name, m[1])
			}
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(root, m[1]) && !slices.Contains(prose, m[1]) {
				t.Errorf("%s: no command gputap %s", name, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			dir := "../.."
			if name != "README.md" {
				dir += "/docs"
			}
			if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", name, m[1], err)
			}
		}
	}
}

// prose is what follows the name in sentences.
var prose = []string{"watches", "counts", "says", "has", "and", "with", "run", "is", "does", "came", "prints"}

func subcommands(t *testing.T) (names []string) {
	p := &app.Process{}
	for _, c := range commands(p) {
		names = append(names, c.Name())
	}
	if len(names) < 5 {
		t.Fatalf("commands %v", names)
	}
	return append(names, "completion", "help")
}

// TestOutputPageHasEveryKey: the contract and the code say the same.
func TestOutputPageHasEveryKey(t *testing.T) {
	page := pages(t)["output.md"]
	for _, v := range []any{pipeline.Snapshot{}, pipeline.Process{}, pipeline.HostMemory{}, pipeline.Call{}, pipeline.GPU{}, pipeline.Copy{}, pipeline.Counters{}, pipeline.MemoryInfo{},
		pipeline.Holders{}, pipeline.Holder{}, pipeline.Pool{}, pipeline.Kernel{}} {
		for i := range reflect.TypeOf(v).NumField() {
			key, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/output.md does not explain %s", key)
			}
		}
	}
	for cause := schema.Loss(0); cause < schema.LossOther; cause++ {
		if !strings.Contains(page, "`"+cause.String()+"`") {
			t.Errorf("docs/output.md does not explain the loss %s", cause)
		}
	}
}

// TestOperatePageHasEveryKey: so do those of gputap stream.
func TestOperatePageHasEveryKey(t *testing.T) {
	page := pages(t)["operate.md"]
	for _, v := range []any{busJSON{}, streamJSON{}, foldJSON{}, letter{}, headJSON{}, batchJSON{}, initJSON{}, bus.Step{}, schema.Topology{}} {
		for i := range reflect.TypeOf(v).NumField() {
			key, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/operate.md does not explain %s", key)
			}
		}
	}
}

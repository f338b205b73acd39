package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRowsHaveDistinctLabels: no two rows of a table have one label, and no two rows show one source.
func TestRowsHaveDistinctLabels(t *testing.T) {
	all := sections
	for _, program := range agentTables {
		all = append(all, section{program.title, program.figures()})
	}
	labels, sources := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		for _, f := range s.figures {
			label := s.title + ": " + f.what
			if labels[label] || f.source != "" && sources[f.source] || strings.ContainsAny(label, "|\n") {
				t.Errorf("row %s of %s is not distinct", label, f.source)
			}
			labels[label], sources[f.source] = true, true
		}
	}
}

// TestSourcesAreBenchmarks: a renamed benchmark is found before half an hour of measuring.
func TestSourcesAreBenchmarks(t *testing.T) {
	for _, s := range sections {
		for _, f := range s.figures {
			fields := strings.Fields(f.source)
			name, _, _ := strings.Cut(fields[1], "/")
			files, err := filepath.Glob("../../../../" + fields[0] + "/*_test.go")
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found = found || regexp.MustCompile(`func Benchmark`+name+`\(`).Match(text)
			}
			if !found || len(fields) != 3 {
				t.Errorf("%q is no benchmark of the tree", f.source)
			}
		}
	}
}

func TestShownConvertsUnits(t *testing.T) {
	for source, row := range map[string]struct {
		unit string
		want float64
	}{
		"p B ns/event": {events, 20}, "p B events/s": {events, 50e-6}, "p B ns/op": {"ms", 50e-6},
		"p B B/event": {"B/event", 50},
	} {
		f := figure{unit: row.unit, source: source}
		if got := f.shown(50); got != row.want {
			t.Errorf("%s is %g %s, want %g", source, got, row.unit, row.want)
		}
	}
}

// TestPagesShowTheTables: each row of a page has a label, a unit and a budget that bench prints today.
func TestPagesShowTheTables(t *testing.T) {
	pages := map[string]string{
		"Capture": "capture", "Ring to ack": "ring-to-ack", "Wire and codec": "wire", "Folds": "folds",
	}
	for _, s := range sections {
		rows := map[string]bool{}
		for _, f := range s.figures {
			rows[f.what+" | "+f.unit+" | "+f.budget.String()] = true
		}
		text, err := os.ReadFile("../../../../docs/measurements/" + pages[s.title] + ".md")
		if err != nil {
			t.Fatal(err)
		}
		_, shown, _ := strings.Cut(string(text), "| what | unit | measured | budget |  |\n")
		shown, _, _ = strings.Cut(shown, "\n\n")
		for _, line := range strings.Split(strings.TrimSpace(shown), "\n")[1:] {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			if len(cells) < 3 {
				t.Fatalf("%s shows %q", pages[s.title], line)
			}
			budget := ""
			if len(cells) > 3 {
				budget = cells[3]
			}
			if !rows[cells[0]+" | "+cells[1]+" | "+budget] {
				t.Errorf("%s.md shows %q, which bench does not print", pages[s.title], line)
			}
		}
	}
}

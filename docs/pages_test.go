package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

// page is one Markdown file.
type page struct {
	name     string // path from the repository root
	text     string // all of it
	prose    string // without its fenced blocks
	blocks   []block
	commands []command
}

// block is one fenced block.
type block struct {
	line     int // of the opening fence
	language string
	lines    []string
}

// command is the text that a reader pastes at once, and the output that the page shows for it.
type command struct {
	line  int
	text  string
	shown []string
}

// pages reads README.md, CHANGELOG.md and all pages below docs, README first.
func pages(t *testing.T) []page {
	t.Helper()
	paths := []string{"README.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			paths = append(paths, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
		}
	}
	var all []page
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parse(t, path, string(data)))
	}
	return all
}

func parse(t *testing.T, name, text string) page {
	t.Helper()
	p := page{name: name, text: text}
	var prose []string
	var open *block
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{line: i + 1, language: fence}
		case isFence:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		default:
			prose = append(prose, line)
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block does not end", name, open.line)
	}
	p.prose = strings.Join(prose, "\n")
	for _, b := range p.blocks {
		switch b.language {
		case "console":
			p.commands = append(p.commands, b.session()...)
		case "sh":
			p.commands = append(p.commands, b.script()...)
		}
	}
	return p
}

// session parses a block of commands, each behind "$ ", and their output.
func (b block) session() (commands []command) {
	for i := 0; i < len(b.lines); i++ {
		text, isCommand := strings.CutPrefix(b.lines[i], "$ ")
		if !isCommand {
			if len(commands) > 0 {
				last := &commands[len(commands)-1]
				last.shown = append(last.shown, b.lines[i])
			}
			continue
		}
		c := command{line: b.line + 1 + i, text: text}
		for !complete(c.text) && i+1 < len(b.lines) {
			i++
			c.text += "\n" + strings.TrimPrefix(b.lines[i], "> ")
		}
		commands = append(commands, c)
	}
	return commands
}

// script parses a block that holds commands alone.
func (b block) script() (commands []command) {
	for i := 0; i < len(b.lines); i++ {
		if line := strings.TrimSpace(b.lines[i]); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c := command{line: b.line + 1 + i, text: b.lines[i]}
		for !complete(c.text) && i+1 < len(b.lines) {
			i++
			c.text += "\n" + b.lines[i]
		}
		commands = append(commands, c)
	}
	return commands
}

// complete reports whether a shell would run text instead of asking for the next line.
func complete(text string) bool {
	if strings.HasSuffix(text, `\`) {
		return false
	}
	if !regexp.MustCompile(`\b(for|while|if|do)\b|[({'"]`).MatchString(text) {
		return true
	}
	return exec.Command("bash", "-n", "-c", text).Run() == nil
}

// TestFencesNameTheirLanguage keeps commands in the blocks that TestPaste runs.
func TestFencesNameTheirLanguage(t *testing.T) {
	t.Parallel()
	languages := []string{"console", "sh", "text", "yaml", "json", "go", "c", "python", "hex", "mermaid", "promql",
		"sql"}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if !slices.Contains(languages, b.language) {
				t.Errorf("%s:%d: block of language %q; use console (with output), sh (commands alone) or one of %v",
					p.name, b.line, b.language, languages)
			}
		}
	}
}

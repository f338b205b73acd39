package schema_test

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// TestDocumentedBytes: the annotated example of docs/wire.md is the golden message.
func TestDocumentedBytes(t *testing.T) {
	_, block, found := strings.Cut(string(read(t, "../docs/wire.md")), "```hex\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("docs/wire.md has no hex block")
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		code, _, _ := strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(code), ""))
	}
	if want := hex.EncodeToString(smallGolden()); digits.String() != want {
		t.Errorf("docs/wire.md shows\n%s, want\n%s", digits.String(), want)
	}
}

// TestDocumentedWords: docs/wire.md explains every key that is written and every word, and the example
// reader knows every op.
func TestDocumentedWords(t *testing.T) {
	page := string(read(t, "../docs/wire.md"))
	explained := func(word string) {
		if word != "" && !strings.Contains(page, "`"+word+"`") {
			t.Errorf("docs/wire.md does not explain %q", word)
		}
	}
	_, ops, _ := strings.Cut(string(read(t, "../examples/read_batch.py")), `OPS = """`)
	ops, _, _ = strings.Cut(ops, `"""`)
	known := strings.Fields(ops)
	for op := schema.OpUnknown; op < schema.OpName; op++ {
		explained(op.String())
		if op != schema.OpUnknown && !slices.Contains(known, op.String()) {
			t.Errorf("examples/read_batch.py does not know op %q", op)
		}
	}
	for c := range schema.NumClasses {
		explained(c.String())
	}
	for d := range schema.NumDirections {
		explained(d.String())
	}
	for l := range schema.NumLosses {
		explained(l.String())
	}
	for k := range schema.NumKinds {
		explained(k.String())
	}
	for _, g := range goldens {
		if strings.HasPrefix(g.name, "newer") {
			continue
		}
		var message map[string]any
		if err := msgpack.Unmarshal(g.bytes(), &message); err != nil {
			t.Fatal(err)
		}
		for key := range message {
			explained(key)
		}
		columns, _ := message["cols"].(map[string]any)
		for key := range columns {
			explained(key)
		}
	}
}

// TestCoveragePage: docs/coverage.md counts the table, names its classes, and calls nothing unseen that
// has a row.
func TestCoveragePage(t *testing.T) {
	page := string(read(t, "../docs/coverage.md"))
	rows := map[string]bool{}
	for i := range schema.Calls {
		if schema.Calls[i].Shape != schema.ShapeNone {
			rows[schema.Calls[i].Symbol] = true
		}
	}
	if want := fmt.Sprintf("%d functions are probed", len(rows)); !strings.Contains(page, want) {
		t.Errorf("docs/coverage.md does not say: %s", want)
	}
	memory, _, _ := strings.Cut(page, "## Names and graphs")
	for c := schema.ClassDevice; c < schema.NumClasses; c++ {
		if c != schema.ClassMulticast && !strings.Contains(memory, c.String()) {
			t.Errorf("class %s is not explained", c)
		}
	}
	_, unseen, found := strings.Cut(page, "## Not seen")
	if !found {
		t.Fatal("no section of what is not seen")
	}
	for _, m := range regexp.MustCompile("`(cu[A-Z]\\w+)`").FindAllStringSubmatch(unseen, -1) {
		if rows[m[1]] && m[1] != "cuGetExportTable" {
			t.Errorf("%s is called unseen and has a row", m[1])
		}
	}
}

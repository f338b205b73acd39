package schema_test

import (
	"encoding/hex"
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

// TestDocumentedWords: docs/wire.md explains every key that is written and every word.
func TestDocumentedWords(t *testing.T) {
	page := string(read(t, "../docs/wire.md"))
	explained := func(word string) {
		if word != "" && !strings.Contains(page, "`"+word+"`") {
			t.Errorf("docs/wire.md does not explain %q", word)
		}
	}
	for op := schema.OpUnknown; op <= schema.OpUUID; op++ {
		explained(op.String())
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
		if strings.HasPrefix(g.name, "forward") {
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

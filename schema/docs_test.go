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

// generated compares the text between two lines of a file with text that was made from the tables. -update writes it.
func generated(t *testing.T, path, first, last, want string) {
	t.Helper()
	page := string(read(t, path))
	before, rest, found := strings.Cut(page, first+"\n")
	got, after, closed := strings.Cut(rest, last+"\n")
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", path, first, last)
	}
	if got == want {
		return
	}
	if *update {
		write(t, path, []byte(before+first+"\n"+want+last+"\n"+after))
		return
	}
	t.Errorf("%s has\n%s\nwant\n%s\nrun go test ./schema -update", path, got, want)
}

// TestTablesAreDocumented compares the tables of docs/columns.md and examples/read_batch.py with Columns and
// Dictionaries.
func TestTablesAreDocumented(t *testing.T) {
	generated(t, "../docs/columns.md", "<!-- columns: from schema/columns.go by go test ./schema -update -->",
		"<!-- end -->", columnTable())
	generated(t, "../docs/columns.md", "<!-- dictionaries: from schema/dictionaries.go by go test ./schema -update -->",
		"<!-- end -->", dictionaryTable())
	generated(t, "../examples/read_batch.py",
		"# Generated from schema.Columns and schema.Dictionaries by: go test ./schema -update",
		"# end of the generated tables", pythonTables())
}

func columnTable() string {
	var w strings.Builder
	w.WriteString("| key | in kinds | bits | values | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range schema.Columns {
		var kinds []string
		for _, k := range c.Kinds {
			kinds = append(kinds, k.String())
		}
		values := c.Unit
		switch {
		case c.Optional:
			values = "0: unknown, else 1 + index into `" + schema.Dictionaries[c.Dictionary].Key + "`"
		case c.Content == schema.ContentIndex:
			values = "index into `" + schema.Dictionaries[c.Dictionary].Key + "`"
		case c.Content == schema.ContentAddress:
			values = "address or handle"
		}
		fmt.Fprintf(&w, "| `%s` | %s | %d | %s | %s |\n", c.Key, strings.Join(kinds, ", "), c.Bits, values, c.Doc)
	}
	return w.String()
}

func dictionaryTable() string {
	var w strings.Builder
	w.WriteString("| key | entries | fields of a row, in order |\n| --- | --- | --- |\n")
	for _, d := range schema.Dictionaries[schema.DictNone+1:] {
		var fields []string
		for _, f := range d.Fields {
			field := "`" + f.Name + "`"
			if f.Doc != "" {
				field += " (" + f.Doc + ")"
			}
			fields = append(fields, field)
		}
		if d.Bare {
			fields = []string{"no rows: the entries are numbers"}
		}
		fmt.Fprintf(&w, "| `%s` | %s | %s |\n", d.Key, d.Doc, strings.Join(fields, ", "))
	}
	return w.String()
}

// pythonTables is COLUMNS, kind to column keys, and ROWS, dictionary to fields with their zero values.
func pythonTables() string {
	var w strings.Builder
	w.WriteString("COLUMNS = {\n")
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		var keys []string
		for _, c := range schema.Columns {
			if slices.Contains(c.Kinds, kind) {
				keys = append(keys, c.Key)
			}
		}
		fmt.Fprintf(&w, "    %q: %q,\n", kind, strings.Join(keys, " "))
	}
	w.WriteString("}\nROWS = {\n")
	for _, d := range schema.Dictionaries[schema.DictNone+1:] {
		if d.Bare {
			continue
		}
		line := fmt.Sprintf("    %q: {", d.Key)
		for i, f := range d.Fields {
			zero := "0"
			switch f.Content {
			case schema.ContentText:
				zero = `""`
			case schema.ContentList:
				zero = "[]"
			}
			field := fmt.Sprintf("%q: %s", f.Name, zero)
			if i+1 < len(d.Fields) {
				field += ","
			}
			if len(line)+len(field) > 112 {
				w.WriteString(line + "\n")
				line = strings.Repeat(" ", 11)
			}
			if i > 0 {
				line += " "
			}
			line += field
		}
		w.WriteString(line + "},\n")
	}
	w.WriteString("}\n")
	return w.String()
}

// TestRowsHaveAllDocumentedFields compares the length of each row that is written with Dictionaries.
func TestRowsHaveAllDocumentedFields(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range goldens {
		if strings.HasPrefix(g.name, "newer") {
			continue
		}
		var message map[string]any
		if err := msgpack.Unmarshal(g.bytes(), &message); err != nil {
			t.Fatal(err)
		}
		for _, d := range schema.Dictionaries[schema.DictNone+1:] {
			list, _ := message[d.Key].([]any)
			for _, entry := range list {
				seen[d.Key] = true
				if row, ok := entry.([]any); ok == d.Bare || ok && len(row) != len(d.Fields) {
					t.Errorf("%s: %s has the entry %v, want %d fields", g.name, d.Key, entry, len(d.Fields))
				}
			}
		}
	}
	if len(seen) != len(schema.Dictionaries)-1 {
		t.Errorf("the goldens have the dictionaries %v", seen)
	}
}

// TestDocumentedWords expects every key that is written and every word to be explained, and the example reader to know
// every op.
func TestDocumentedWords(t *testing.T) {
	page := string(read(t, "../docs/wire.md")) + string(read(t, "../docs/columns.md")) +
		string(read(t, "../docs/events.md"))
	explained := func(word string) {
		if word != "" && !strings.Contains(page, "`"+word+"`") {
			t.Errorf("none of docs/wire.md, docs/columns.md and docs/events.md explains %q", word)
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
	memory, _, _ := strings.Cut(page, "## Kernel names and graphs")
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

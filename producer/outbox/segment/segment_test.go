package segment

import (
	"testing"

	"github.com/gputap/gputap/schema"
)

// FuzzParse: a name that Parse accepts is the name of the result.
func FuzzParse(f *testing.F) {
	f.Add(Name{Kind: schema.KindMemory, Number: 3<<32 | 7, Begin: Position{Batches: 12, Events: 345}, Lost: 6}.String())
	f.Add("0000000000000001-0-0-0.launch2")
	f.Add("12.memory")
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := Parse(text); ok && n.String() != text {
			t.Errorf("%q is read as %q", text, n)
		}
	})
}

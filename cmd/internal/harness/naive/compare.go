package naive

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// Differences compares an answer with what it should be, both as JSON. Numbers may differ by a rounding error. skipped
// are patterns of paths, such as /alerts, that are not compared. unordered are patterns of lists without an order, with
// the key by which their items are compared. Every other key must be on both sides.
func Differences(got, want any, skipped []string, unordered map[string]string) (list []string, err error) {
	c := comparison{skipped: skipped, unordered: unordered}
	g, err := decoded(got)
	if err != nil {
		return nil, err
	}
	w, err := decoded(want)
	if err != nil {
		return nil, err
	}
	c.compare("", g, w)
	return c.list, nil
}

func decoded(v any) (out any, err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return out, d.Decode(&out)
}

type comparison struct {
	skipped   []string
	unordered map[string]string
	list      []string
}

func matches(patterns []string, at string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, at); return ok })
}

func (c *comparison) differ(at string, got, want any) {
	c.list = append(c.list, fmt.Sprintf("%s: got %v, want %v", at, text(got), text(want)))
}

func text(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func (c *comparison) compare(at string, got, want any) {
	switch w := want.(type) {
	case Object:
		g, ok := got.(Object)
		if !ok {
			c.differ(at, got, want)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(union(g, w))) {
			next := at + "/" + key
			_, inGot := g[key]
			_, inWant := w[key]
			switch {
			case matches(c.skipped, next):
			case !inWant:
				c.differ(next, g[key], "no such key")
			case !inGot:
				c.differ(next, "no such key", w[key])
			default:
				c.compare(next, g[key], w[key])
			}
		}
	case []any:
		c.compareLists(at, got, w)
	case json.Number:
		if g, ok := got.(json.Number); !ok || !near(g, w) {
			c.differ(at, got, want)
		}
	default:
		if got != want {
			c.differ(at, got, want)
		}
	}
}

func (c *comparison) compareLists(at string, got any, want []any) {
	g, ok := got.([]any)
	if !ok || len(g) != len(want) {
		c.differ(at, got, want)
		return
	}
	for pattern, key := range c.unordered {
		if matches([]string{pattern}, at) {
			order := func(a, b any) int {
				return cmp.Or(cmp.Compare(text(a.(Object)[key]), text(b.(Object)[key])), cmp.Compare(text(a), text(b)))
			}
			slices.SortFunc(g, order)
			slices.SortFunc(want, order)
		}
	}
	for i := range want {
		c.compare(fmt.Sprintf("%s/%d", at, i), g[i], want[i])
	}
}

func union(a, b Object) Object {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// near compares whole numbers exactly.
func near(a, b json.Number) bool {
	if !strings.ContainsAny(string(a)+string(b), ".e") {
		return a == b
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	return errX == nil && errY == nil && math.Abs(x-y) <= 1e-12*math.Abs(y)
}

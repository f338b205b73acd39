package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	parser "github.com/knadh/koanf/parsers/yaml"
	"go.yaml.in/yaml/v3"
)

// document is a file with one YAML document. The parser alone would ignore all documents after the first.
type document struct{ *parser.YAML }

// Unmarshal rejects a second document, and keys that are written with dots as flags are.
func (document) Unmarshal(data []byte) (first map[string]any, err error) {
	in := yaml.NewDecoder(bytes.NewReader(data))
	err = in.Decode(&first)
	for err == nil {
		var more any
		if err = in.Decode(&more); more != nil {
			return nil, errors.New("the file has a second document after ---; write one document")
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if key := dotted(first); key != "" {
		nested := strings.ReplaceAll(key, ".", ": {") + ": …" + strings.Repeat("}", strings.Count(key, "."))
		return nil, fmt.Errorf("key %s has dots; in a file write %s", key, nested)
	}
	return first, nil
}

// dotted returns the first key with a dot, or "".
func dotted(section map[string]any) string {
	for _, key := range slices.Sorted(maps.Keys(section)) {
		if strings.Contains(key, ".") {
			return key
		}
		if below, ok := section[key].(map[string]any); ok {
			if key := dotted(below); key != "" {
				return key
			}
		}
	}
	return ""
}

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

// document is a file of one YAML document: of several only the first would count.
type document struct{ *parser.YAML }

// Unmarshal refuses more than one, and keys with dots, which are those of flags.
func (document) Unmarshal(data []byte) (first map[string]any, err error) {
	in := yaml.NewDecoder(bytes.NewReader(data))
	err = in.Decode(&first)
	for err == nil {
		var more any
		if err = in.Decode(&more); more != nil {
			return nil, errors.New("a second document begins after ---: write one")
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if key := dotted(first); key != "" {
		nested := strings.ReplaceAll(key, ".", ": {") + ": …" + strings.Repeat("}", strings.Count(key, "."))
		return nil, fmt.Errorf("key %s: in a file its parts stand below each other: write %s", key, nested)
	}
	return first, nil
}

// dotted is the first key with a dot, "" without one.
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

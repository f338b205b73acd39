package config

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Print writes a configuration as a YAML file that explains each key. Secrets are hidden.
func Print(w io.Writer, cfg any) error {
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(section("", reflect.ValueOf(cfg))); err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	return out.Close()
}

func section(prefix string, s reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, field := range fieldsOf(s) {
		key, content := field.Tag.Get("koanf"), s.FieldByIndex(field.Index)
		value := &yaml.Node{}
		if content.Kind() == reflect.Struct {
			value = section(prefix+key+".", content)
		} else {
			_ = value.Encode(printed(key, content.Interface())) // cannot fail for strings, numbers and lists of strings
			value.LineComment = docs[prefix+key]
		}
		if value.Kind == yaml.SequenceNode {
			value.Style = yaml.FlowStyle
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	return node
}

func printed(key string, value any) any {
	switch v := value.(type) {
	case time.Duration:
		return v.String()
	case Bytes:
		if text := v.String(); text != strconv.FormatInt(int64(v), 10) {
			return text
		}
	case string:
		if key == "url" {
			return redacted(v)
		}
		if isSecret(v) {
			return hidden
		}
		return Redact(v)
	case []string:
		shown := slices.Clone(v)
		for i := range shown {
			shown[i] = Redact(shown[i])
		}
		return shown
	}
	return value
}

// hidden replaces a secret, as in net/url.
const hidden = "xxxxx"

var (
	serverStart = regexp.MustCompile(`(?:^|[\s,"'=(\[])[A-Za-z][\w+.-]*://`)
	loginInURL  = regexp.MustCompile(`(://(?:[^\s:@/]+:)?).*@`)
	// me:password@host, which nats.url accepts too
	bareLogin   = regexp.MustCompile(`((?:^|[\s,"'=(\[])[^\s:@/,"'=(\[]+:)[^\s/]\S*@`)
	afterServer = regexp.MustCompile(`(\b(?:nats|tls|wss?)://[^\s/?#"]+[/?#])[^\s"]+`)
)

// Redact hides passwords and tokens in the URLs of a text, and the path and query of NATS URLs. Errors repeat what the
// user typed, and the user may have typed a URL where none is expected.
func Redact(text string) string {
	var out strings.Builder
	from := 0
	for _, at := range serverStart.FindAllStringIndex(text, -1) {
		out.WriteString(redactServer(text[from:at[0]]))
		from = at[0]
	}
	out.WriteString(redactServer(text[from:]))
	return out.String()
}

// redactServer hides everything up to the last @, because a password may contain one.
func redactServer(text string) string {
	text = loginInURL.ReplaceAllString(text, "${1}"+hidden+"@")
	text = bareLogin.ReplaceAllString(text, "${1}"+hidden+"@")
	return afterServer.ReplaceAllString(text, "${1}"+hidden)
}

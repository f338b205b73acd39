package process

import "strings"

// Label returns a name as valid UTF-8, which Prometheus requires of label values.
func Label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

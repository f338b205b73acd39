package process

import "strings"

// Label makes a metric label of a name that a program chose: Prometheus takes valid UTF-8 only.
func Label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

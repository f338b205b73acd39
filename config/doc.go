// Package config declares what can be configured, one documented struct per section, and reads it: defaults, then a
// YAML file, then GPUTAP_… variables, then flags. Each source overrides the ones before it.
//
// Keys are dotted in flags (--nats.url) and nested in YAML. In variables a dot is two underscores (GPUTAP_NATS__URL).
// Commas separate the entries of a list. An unknown key is an error in every source, and the error names a similar key
// if there is one. One file and one environment may serve all programs: each program ignores the sections of others.
//
// A variable without two underscores is ignored, because Kubernetes makes such variables from the names of services
// (GPUTAP_LEAK_PORT).
//
// Files hold secrets, and keys hold their paths. A password in nats.url is never printed.
package config

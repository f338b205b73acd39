// Package config holds what can be set, one documented struct per section, and reads it: defaults,
// then a YAML file, then GPUTAP_… variables, then flags, each over the one before.
//
// Keys are dotted in flags (--nats.url), nested in YAML, and in variables their dots are two
// underscores (GPUTAP_NATS__URL). Lists are separated by commas. An unknown key is an error that
// names it and the known one nearest to it, wherever it stands. One file, and one environment, may
// serve all commands: each takes its own sections and passes over the others'.
//
// A variable without two underscores is none of ours, as Kubernetes makes some of the names of
// services (GPUTAP_LEAK_PORT), unless it is one of ours but for an underscore, or a flag's short name.
//
// Secrets are given as paths of files. A password in nats.url is never printed.
package config

// Package fold lists the folds (registry.go) and runs one as a program: read shards, serve metrics, print reports.
// docs/development.md says how to add a consumer. The host agent must not import this package.
package fold

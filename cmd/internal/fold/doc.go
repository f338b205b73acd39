// Package fold lists the folds (registry.go) and runs one as a program: read shards, serve metrics, print reports.
// A new consumer is a folder below consumer/, a main.go and one statement in registry.go. The host agent must
// not import this package.
package fold

// Package analyze is gputap analyze: questions about a recording that the folds answer after the fact.
//
// The JSON keys of its types are a contract: docs/analyze.md. Text is for people and may change.
package analyze

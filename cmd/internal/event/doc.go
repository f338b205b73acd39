// Package event is the form in which the commands show single CUDA calls: one line of JSON or of text each.
//
// The JSON keys are a contract: docs/answers.md. Text is for people and may change.
package event

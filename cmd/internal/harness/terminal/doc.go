// Package terminal is a terminal for tests: a pseudo-terminal of Linux, and an emulator that shows what a program wrote
// to it.
package terminal

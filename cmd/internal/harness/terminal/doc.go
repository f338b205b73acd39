// Package terminal is a terminal for tests: a pseudo-terminal of Linux, and an emulator that keeps the screen.
package terminal

// Package preflight checks, before anything is attached, what this Linux and this process's capabilities allow.
//
// Importing it starts nothing: it has no init function and needs no call from main. ReturnProbes forks a child that
// calls one probed function under a seccomp filter and ends. It never executes the program again, so a program that
// uses gputap as a library, or a test, can call it too. All functions may be called from any goroutine.
package preflight

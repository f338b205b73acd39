package bpf

import "unsafe"

// prefetch requests two cache lines and does not wait for them.
//
//go:noescape
func prefetch(at unsafe.Pointer)

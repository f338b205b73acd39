package bpf

import "unsafe"

// prefetch asks for two cache lines and does not wait for them.
//
//go:noescape
func prefetch(at unsafe.Pointer)

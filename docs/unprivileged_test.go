//go:build !bpf

package docs

const privileged = false // the pages without sudo run

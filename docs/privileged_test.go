//go:build bpf

package docs

const privileged = true // commands behind sudo run too

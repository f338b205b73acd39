//go:build !bpf

package docs

const privileged = false // commands behind sudo run with the build tag bpf

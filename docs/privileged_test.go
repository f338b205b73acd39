//go:build bpf

package docs

const privileged = true // the pages with sudo run

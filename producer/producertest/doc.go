// Package producertest runs the stub driver's workload program under tests that attach real uprobes.
package producertest

// Package stub reads the counts of the stub CUDA driver. They are the truth for programs that run gputap's own
// processes against the stub, because none of gputap's code produces them.
package stub

// Package stub reads what the stub CUDA driver counted itself. It is the truth for programs that run gputap's own
// processes against the stub; no code of gputap takes part in it.
package stub

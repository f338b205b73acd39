// Package stub reads what the stub CUDA driver counted of itself: the truth for programs that run gputap's own processes
// on it. Nothing of gputap has a part in it.
package stub

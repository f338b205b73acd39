// Package library finds, opens and reads CUDA driver libraries (libcuda.so.1), and PyTorch's libc10.so, to which its
// allocator reports. It attaches nothing.
//
// Finding: OnHost lists the host's own libraries, ForCommand those that a command would load instead, and a Scanner
// those that running processes have mapped. A process may end or unmap a library at any time; ErrUnmapped says so.
//
// Reading: a library is untrusted input, since any user can map a file with its name. Read limits every size, so it
// never uses more memory than a real driver needs.
//
// One goroutine at a time may use a Scanner. The functions may be called from any goroutine.
package library

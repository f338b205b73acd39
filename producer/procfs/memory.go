package procfs

import "golang.org/x/sys/unix"

// ReadMemory copies memory of a process from an address on, up to the first page that is not mapped. It returns the
// number of bytes copied, 0 when the process ended or may not be read.
func ReadMemory(pid uint32, address uint64, to []byte) int {
	const page = 4096
	first := min(uint64(len(to)), page-address%page)
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: int(first)}}
	if rest := uint64(len(to)) - first; rest > 0 {
		remote = append(remote, unix.RemoteIovec{Base: uintptr(address + first), Len: int(rest)})
	}
	n, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
	if err != nil {
		return 0
	}
	return n
}

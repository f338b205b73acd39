package bustest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Port reserves a TCP port of 127.0.0.1 until the test ends, for servers that start later, or once more. They can
// listen on it, as all that set SO_REUSEADDR can. Linux gives it neither to others that ask for any free port, nor to
// connections.
func Port(t testing.TB) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return address.(*unix.SockaddrInet4).Port
}

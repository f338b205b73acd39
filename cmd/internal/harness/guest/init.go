package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mount mounts the file systems of an ordinary host.
func Mount() (err error) {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"},
		{"tracefs", "/sys/kernel/tracing"},
	} {
		if failed := syscall.Mount(m.kind, m.at, m.kind, 0, ""); failed != nil {
			err = errors.Join(err, fmt.Errorf("mount %s: %w", m.at, failed))
		}
	}
	return err
}

// PowerOff turns the machine off. Unmount disks before.
func PowerOff() {
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// Load loads the kernel modules of a directory in the order of their file names.
func Load(dir string) error {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.ko"))
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// Address assigns an IPv4 address, with the mask of its class, to a network interface and brings it up.
func Address(name string, ip [4]byte) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = request.SetInet4Addr(ip[:])
	}
	if err == nil {
		err = unix.IoctlIfreq(socket, unix.SIOCSIFADDR, request)
	}
	if err == nil {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

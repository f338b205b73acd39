package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

// pack writes an initramfs with this program, gputap, compiled tests and fixtures. Below /gputap the files have the
// same paths as in the tree.
func pack(path string) error {
	tests := filepath.Join(filepath.Dir(path), "producer.test")
	build := exec.Command("go", "test", "-c", "-tags", "bpf", "-o", tests, "./producer")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("compile the tests: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{
		"init": self, "gputap/producer/producer.test": tests, "gputap/bin/gputap": "bin/gputap",
		"gputap/bin/workload": "bin/workload", "gputap/bin/stub/libcuda.so.1": "bin/stub/libcuda.so.1",
	}
	if err := guest.Libraries("bin/workload", files); err != nil {
		return err
	}
	return guest.Pack(path, files)
}

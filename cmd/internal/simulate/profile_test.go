package simulate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestProfileIsReadFromOpenPipes also expects that a named pipe, which could block for ever, is rejected.
func TestProfileIsReadFromOpenPipes(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.WriteString("\xff\xff\xff\xff"); err != nil { // a length that ends what reads it
		t.Fatal(err)
	}
	for _, path := range []string{fifo, t.TempDir(), "/dev/null"} {
		if _, err := openRecording(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s gives %v", path, err)
		}
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	written := make(chan error, 1)
	go func() {
		_, err := in.Write(pytorch)
		_ = in.Close()
		written <- err
	}()
	want, err := openRecording("")
	if err != nil {
		t.Fatal(err)
	}
	got, err := openRecording(fmt.Sprintf("/dev/fd/%d", out.Fd()))
	if err != nil || len(got) != len(want) {
		t.Errorf("from a pipe %d batches, want %d: %v", len(got), len(want), err)
	}
	_ = out.Close()
	if err := <-written; err != nil {
		t.Error(err)
	}
}

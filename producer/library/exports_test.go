package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

const stubPath = "../../bin/stub/libcuda.so.1"

func TestFirstInstruction(t *testing.T) {
	tests := []struct {
		name    string
		code    []byte
		skip    uint64
		stepped bool
	}{
		{"push rbp", []byte{0x55, 0x48, 0x89, 0xe5, 0, 0, 0, 0}, 0, false},
		{"push r12", []byte{0x41, 0x54, 0, 0, 0, 0, 0, 0}, 0, false},
		{"nop", []byte{0x90, 0, 0, 0, 0, 0, 0, 0}, 0, false},
		{"jmp", []byte{0xe9, 1, 2, 3, 4, 0, 0, 0}, 0, false},
		{"call", []byte{0xe8, 1, 2, 3, 4, 0, 0, 0}, 0, false},
		{"endbr64 then push", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0, 0, 0}, 4, false},
		{"endbr64 then sub", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 8}, 4, true},
		{"mov", []byte{0x48, 0x89, 0xe5, 0, 0, 0, 0, 0}, 0, true},
		{"five-byte nop", []byte{0x0f, 0x1f, 0x44, 0, 0, 0, 0, 0}, 0, true},
		{"REX prefix of no push", []byte{0x41, 0x89, 0xc0, 0, 0, 0, 0, 0}, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			skip, stepped := firstInstruction(tt.code)
			if skip != tt.skip || stepped != tt.stepped {
				t.Errorf("skip %d stepped %v, want %d and %v", skip, stepped, tt.skip, tt.stepped)
			}
		})
	}
}

var exported = regexp.MustCompile(`^[0-9a-f]+ <(cu[A-Z]|stub)[A-Za-z0-9_]*>:$`)

// TestStubBeginsWithPush compares the stub with the real driver; objdump, not gputap, reads it.
func TestStubBeginsWithPush(t *testing.T) {
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", stubPath).Output()
	if err != nil {
		t.Fatalf("disassemble the stub (apt-get install binutils; make stub): %v", err)
	}
	lines := strings.Split(string(out), "\n")
	functions := 0
	for i, line := range lines {
		if !exported.MatchString(line) {
			continue
		}
		functions++
		if !strings.Contains(lines[i+1], "push") {
			t.Errorf("%s begins with %q", line, strings.TrimSpace(lines[i+1]))
		}
	}
	if functions < len(schema.Calls) {
		t.Errorf("only %d functions found", functions)
	}
}

func TestStubHasEveryCall(t *testing.T) {
	file, err := os.Open(stubPath)
	if err != nil {
		t.Fatalf("%v: run make stub", err)
	}
	defer file.Close()
	all := callsOf(schema.DriverLibrary)
	exported, err := Read(file, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(exported.Absent) != 0 {
		t.Errorf("the stub lacks %v", exported.Absent)
	}
	if len(exported.Sites) != len(all) {
		t.Errorf("%d probe sites for %d calls: functions share an address", len(exported.Sites), len(all))
	}
	for _, s := range exported.Sites {
		if s.Stepped {
			t.Errorf("%s would be single-stepped", schema.Calls[s.Call].Symbol)
		}
	}
}

func TestOtherFilesAreNoLibraries(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": "#!/bin/sh\n", "cut ELF": "\x7fELF\x02\x01\x01"} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(content), callsOf(schema.DriverLibrary)); err == nil {
				t.Error("no error")
			}
		})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := Inspect(filepath.Clean(self))
	if err == nil && l.Attached != 0 {
		t.Errorf("found %d CUDA functions in this test", l.Attached)
	}
}

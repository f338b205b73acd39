package producer

import (
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confinedEnv makes of any program with this package the confined child of a preflight.
const confinedEnv = "GPUTAP_CONFINED_CHILD"

// Of preflight_amd64.s.
func probed()
func probedAddress() uint64

func init() {
	if os.Getenv(confinedEnv) != "" {
		beConfined()
	}
}

const uretprobe = 335 // the system call; no filter that is older than it lets it pass

// beConfined calls the probed function under a filter that allows what is older than uretprobe, and
// ends the process: with 0 when it lives so long, with SIGSYS when the filter saw the system call. The
// filter binds this thread alone; Go's own threads go on beside it.
func beConfined() {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uretprobe, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fatal("prctl", err)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		fatal("seccomp", errno)
	}
	probed()
	os.Exit(0)
}

func fatal(what string, err error) {
	fmt.Fprintln(os.Stderr, what+":", err)
	os.Exit(1)
}

// fileOffset is where in its file a program has an address.
func fileOffset(path string, address uint64) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if f.Type != elf.ET_EXEC {
		return 0, fmt.Errorf("%s is %s: its addresses are not those of its file", path, f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr <= address && address < p.Vaddr+p.Filesz {
			return address - p.Vaddr + p.Off, nil
		}
	}
	return 0, fmt.Errorf("%s has nothing at %#x", path, address)
}

#include "textflag.h"

// func probed()
//
// A leaf without a frame: its return address is where a return probe expects it. Linux emulates the nop.
TEXT ·probed(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x90
	RET

// func probedAddress() uint64
//
// The address of probed itself; a Go function value would give that of a wrapper.
TEXT ·probedAddress(SB), NOSPLIT, $0-8
	LEAQ ·probed(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func forkConfined(program *unix.SockFprog) (pid int64)
//
// The parent gets the pid of the child, or a negative errno. The child has a copy of this stack and never returns: its
// exit status is one of the constants in fork_amd64.go.
TEXT ·forkConfined(SB), NOSPLIT, $8-16
	MOVQ program+0(FP), R12
	MOVL $57, AX // fork
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, pid+8(FP)
	RET

child:
	MOVL $157, AX // prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	MOVL $38, DI
	MOVL $1, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL
	MOVL $1, DI
	TESTQ AX, AX
	JNZ  exit
	MOVL $317, AX // seccomp(SECCOMP_SET_MODE_FILTER, 0, program)
	MOVL $1, DI
	XORL SI, SI
	MOVQ R12, DX
	SYSCALL
	MOVL $2, DI
	TESTQ AX, AX
	JNZ  exit
	CALL ·probed(SB)
	XORL DI, DI

exit:
	MOVL $231, AX // exit_group
	SYSCALL
	INT  $3

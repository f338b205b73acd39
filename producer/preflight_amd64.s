#include "textflag.h"

// func probed(): a leaf with a frame of nothing, so that its return address is where a return probe
// expects it. Linux emulates the nop.
TEXT ·probed(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x90
	RET

// func probedAddress() uint64: of the function itself; a func value would give Go's wrapper.
TEXT ·probedAddress(SB), NOSPLIT, $0-8
	LEAQ ·probed(SB), AX
	MOVQ AX, ret+0(FP)
	RET
